mod admission;
mod cluster;
mod deployments;
mod sets;

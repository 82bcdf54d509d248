mod activation;
mod admission;
mod cluster;
mod deployments;
mod failures;
mod sets;
mod users;

mod activation;
mod admission;
mod advanced;
mod cluster;
mod deployments;
mod failures;
mod sets;
mod users;

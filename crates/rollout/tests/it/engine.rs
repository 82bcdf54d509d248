mod compare;
mod judge;
mod laws;
mod refusals;
mod templates;

mod compare;
mod judge;
mod laws;
mod refusals;
mod selection;
mod templates;

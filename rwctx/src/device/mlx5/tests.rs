//! The device's calls against a library that demands their order, and moves data as the documentation has it.

mod conformance;
mod device;
mod equivalence;
mod fake;
mod layout;
mod life;
mod loading;
mod posting;
mod rules;
mod world;

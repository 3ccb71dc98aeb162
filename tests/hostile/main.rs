//! Peers that break every rule, against a real `intact serve`: it lives, answers what deserves an answer with the right
//! code, counts the rest, leaks nothing, and an honest host that works on the same volume meanwhile notices nothing.
//!
//! Each test has a target and peers at loopback addresses of its own.

#[cfg(test)]
mod capsules;
#[cfg(test)]
mod connects;
#[cfg(test)]
mod honest;
#[cfg(test)]
mod lists;
#[cfg(test)]
mod machine;
#[cfg(test)]
mod packets;
#[cfg(test)]
mod peer;
#[cfg(test)]
mod raw;
#[cfg(test)]
mod reads;
#[cfg(test)]
mod stalls;
#[cfg(test)]
mod startup;
#[cfg(test)]
mod world;

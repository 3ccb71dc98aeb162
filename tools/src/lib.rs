//! What Intact's tools are made of: the initiator behind `intact-host`, the work on images behind `intact-pi`.

pub mod host;
pub mod pi;

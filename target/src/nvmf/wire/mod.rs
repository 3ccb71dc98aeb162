//! NVMe layouts as they stand on the wire, with the specifications' field names; nothing else in this crate
//! knows an NVMe byte offset.
//!
//! Sections named in comments are those of NVM Express Base Specification 2.0 ("base"), NVM Command Set
//! Specification 1.0 ("NVM"), and NVMe over Fabrics 1.1 / RDMA Transport 1.0 ("fabrics", "RDMA"). These are
//! views only: [`super::command`] turns them into values, and no arithmetic happens before that.

pub mod cqe;
pub mod fabrics;
pub mod features;
pub mod identify;
pub mod log_page;
pub mod private_data;
pub mod sgl;
pub mod sqe;
pub mod status;

//! Task Management Function Request and Response (RFC 7143 sections 11.5, 11.6).

use super::bhs::{Bhs, FINAL, Numbers, Order, Word};
use super::codes::codes;
use super::number::{Itt, Lun, Sn};
use super::opcode::Opcode;

codes! {
    /// Task management functions (section 11.5.1).
    TaskFunction: u8, 0x7f;
    AbortTask = 1 "ABORT TASK: the task that the Referenced Task Tag names";
    AbortTaskSet = 2 "ABORT TASK SET: this session's tasks of the logical unit";
    ClearAca = 3 "CLEAR ACA";
    ClearTaskSet = 4 "CLEAR TASK SET: all hosts' tasks of the logical unit";
    LogicalUnitReset = 5 "LOGICAL UNIT RESET";
    TargetWarmReset = 6 "TARGET WARM RESET";
    TargetColdReset = 7 "TARGET COLD RESET: a warm one, after which all sessions end";
    TaskReassign = 8 "TASK REASSIGN: needs an ErrorRecoveryLevel of 2";
}

/// A Task Management Function Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskRequest {
    /// Its place among the host's requests.
    pub order: Order,
    /// Function.
    pub function: TaskFunction,
    /// Logical Unit Number; of no meaning to resets of the target.
    pub lun: Lun,
    /// The request's own tag.
    pub itt: Itt,
    /// Referenced Task Tag: the task to abort or reassign.
    pub referenced: Itt,
    /// RefCmdSN: that task's CmdSN.
    pub ref_cmd_sn: Sn,
    /// ExpDataSN, for TASK REASSIGN.
    pub exp_data_sn: u32,
}

impl TaskRequest {
    /// Reads a header of this opcode.
    #[must_use]
    pub fn parse(bhs: &Bhs) -> Self {
        Self {
            order: bhs.order(),
            function: TaskFunction::from_wire(bhs.flags),
            lun: bhs.lun(),
            itt: bhs.itt(),
            referenced: Itt(bhs.word(Word::At20)),
            ref_cmd_sn: Sn(bhs.word(Word::At32)),
            exp_data_sn: bhs.word(Word::At36),
        }
    }

    /// The header that says this.
    #[must_use]
    pub fn emit(&self) -> Bhs {
        Bhs::new(Opcode::TaskManagementRequest, FINAL | self.function.to_wire())
            .with_lun(self.lun)
            .with_itt(self.itt)
            .with(Word::At20, self.referenced.0)
            .with_order(self.order)
            .with(Word::At32, self.ref_cmd_sn.0)
            .with(Word::At36, self.exp_data_sn)
    }
}

codes! {
    /// What became of a task management function (section 11.6.1).
    TaskResponseCode: u8, 0xff;
    Complete = 0 "function complete";
    NoSuchTask = 1 "task does not exist";
    NoSuchLun = 2 "LUN does not exist";
    StillAllegiant = 3 "task still allegiant";
    ReassignNotSupported = 4 "task allegiance reassignment not supported";
    NotSupported = 5 "task management function not supported";
    NotAuthorized = 6 "function authorization failed";
    Rejected = 255 "function rejected";
}

/// A Task Management Function Response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskResponse {
    /// Response.
    pub code: TaskResponseCode,
    /// The request's tag.
    pub itt: Itt,
    /// Sequence numbers.
    pub numbers: Numbers,
}

impl TaskResponse {
    /// Reads a header of this opcode.
    #[must_use]
    pub fn parse(bhs: &Bhs) -> Self {
        Self { code: TaskResponseCode::from_wire(bhs.specific[0]), itt: bhs.itt(), numbers: bhs.numbers() }
    }

    /// The header that says this.
    #[must_use]
    pub fn emit(&self) -> Bhs {
        let mut bhs =
            Bhs::new(Opcode::TaskManagementResponse, FINAL).with_itt(self.itt).with_numbers(self.numbers);
        bhs.specific[0] = self.code.to_wire();
        bhs
    }
}

//! The planner's safety rules as switches, for the model check only.
//!
//! The operator plans under [`Rules::ALL`]. A test switches one rule off and shows that the checker
//! then finds the harm that the rule prevents; a rule without such a test would be a belief.

/// Which safety rules hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rules {
    /// The size changes in steps of one member, and a list becomes live only beside lists that
    /// share a voter with it in every two majorities.
    pub small_steps: bool,
    /// A step begins only when the step before it is finished on every voter, so that at most two
    /// lists are live.
    pub finished_first: bool,
    /// A template that names a newcomer restarts an old member only when the newcomer follows, and
    /// an updated member that can join has joined before the next restart.
    pub joined_first: bool,
    /// The leader restarts when nobody else is left.
    pub leader_last: bool,
    /// A leaver that leads is restarted, so that a member that stays leads.
    pub leaver_steps_down: bool,
    /// A leaver's pod goes only when every voter runs without it.
    pub leaver_goes_last: bool,
    /// The members that stay through a restart serve a majority of every live list.
    pub keep_majority: bool,
    /// No restart while a pod is missing, being deleted, or has not answered yet.
    pub one_at_a_time: bool,
    /// Only the newcomer in the step from one member to two starts with an empty disk and a vote.
    pub empty_disks_do_not_vote: bool,
}

impl Rules {
    /// Every rule holds.
    pub const ALL: Self = Self {
        small_steps: true,
        finished_first: true,
        joined_first: true,
        leader_last: true,
        leaver_steps_down: true,
        leaver_goes_last: true,
        keep_majority: true,
        one_at_a_time: true,
        empty_disks_do_not_vote: true,
    };
}

impl Default for Rules {
    fn default() -> Self {
        Self::ALL
    }
}

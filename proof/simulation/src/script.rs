//! Lives that are written down: what happens, what is waited for, and what has to be the case then.

use std::time::Duration;

use serde_json::Value;

use crate::acts::Act;
use crate::requests::Held;

/// A life as it is written down. In its end nothing goes wrong any more, and the ensemble has to be as asked for.
#[derive(Clone, Debug)]
pub struct Script {
    /// The seed of everything that the script leaves to chance.
    pub seed: u64,
    /// The spec that the ensemble is created with.
    pub spec: Value,
    /// How many replicas of the operator run.
    pub operators: usize,
    /// What happens, one line after the other.
    pub lines: Vec<Line>,
    /// Whether the ensemble has to be as asked for in the end. It does not where a person has to act.
    pub ends_as_asked: bool,
}

/// One line of a script.
#[derive(Clone, Debug)]
pub enum Line {
    /// Something happens that may happen in any life.
    Act(Act),
    /// Something happens that only scripts know.
    Deed(Deed),
    /// Time passes.
    Pause(Duration),
    /// This becomes the case within this time, or the script fails.
    Await(Condition, Duration),
}

/// What only scripts do.
#[derive(Clone, Debug)]
pub enum Deed {
    /// The user changes these fields of the spec.
    Spec(Value),
    /// Requests of the operators are held up.
    HoldUp(Held),
    /// A volume claim and its pod are deleted, whatever the other members do.
    LoseClaim(u16),
    /// The pod template, the pods and the volume claims as they are now are remembered.
    Remember,
    /// A person puts the remembered pod template back, as `kubectl rollout undo` does.
    Undo,
    /// The container beside the server's fails in this pod.
    FailBeside(u16),
    /// The operator's process starts again.
    StartOperator,
    /// The user accepts the loss of data that the status names, by its token.
    AcceptLoss,
    /// Somebody sets a field of the client Service that the operator leaves alone.
    ForeignField,
    /// From now on a webhook replaces these fields of every status that the operators write.
    FalsifyStatus(Value),
}

/// What a script waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The ensemble is as asked for.
    AsAsked,
    /// The pod template has this server list.
    Template(&'static str),
    /// The server of this member runs with this server list, and serves.
    ServesWith(u16, &'static str),
    /// The member serves.
    Serves(u16),
    /// The member's process does not run, or there is no pod.
    Down(u16),
    /// The member runs and does not serve.
    Looks(u16),
    /// The member copies the data.
    Copies(u16),
    /// The member leads.
    Leads(u16),
    /// Two members answer that they lead.
    TwoLead,
    /// The member serves and runs the newest template.
    UpToDate(u16),
    /// A member that does not run the newest template exists, and the template has been seen.
    Outdated,
    /// The member's server cannot run, and Kubernetes says so.
    Failing(u16),
    /// No member may start with an empty disk.
    PermissionClosed,
    /// The pods are those that were remembered.
    SamePods,
    /// Every volume claim that was remembered exists and stays.
    SameClaims,
    /// The status gives this reason in one of its conditions.
    Reason(&'static str),
    /// The condition of this type is true, for this reason.
    Says(&'static str, &'static str),
}

//! The change of an ensemble that is under way, as steps and members: what is done, what is under
//! way, and what remains.
//!
//! It is read from the status. A size change is a chain of steps of one member, so that the lists before
//! and after the present one follow from it; where the chain began is not in the status. Members that change at run
//! time have one step.

use std::collections::BTreeSet;

use bellwether_api::ZooKeeperEnsemble;
use bellwether_api::ensemble::status::{MemberStatus, Phase};
use bellwether_api::ensemble::{Awaited, MemberState, MembershipChange};
use kube::ResourceExt;
use serde::Serialize;

/// How far something has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Stage {
    /// It is finished.
    Done,
    /// It is under way.
    UnderWay,
    /// It comes later.
    Remaining,
}

/// A change from beginning to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Timeline {
    /// What the whole is, in words.
    pub title: String,
    /// Since when the operator carries it out, in UTC.
    pub since: Option<String>,
    /// The steps in order.
    pub steps: Vec<Step>,
}

/// A step of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Step {
    /// What it is, in words.
    pub title: String,
    /// How far it has come.
    pub stage: Stage,
    /// The members that it concerns, in the order in which they are expected to have their turn. Empty
    /// where that is not known yet.
    pub members: Vec<Turn>,
}

/// A member in a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Turn {
    /// The pod.
    pub name: String,
    /// How far it has come.
    pub stage: Stage,
    /// The plan's verdict, or what will be created. Empty when it is done.
    pub note: String,
}

impl Stage {
    /// How far the change has come at a member.
    pub(crate) fn of(member: &MemberStatus) -> Self {
        let awaited = member.waiting_for.as_ref().map(|waiting| waiting.what);
        match (member.state, awaited) {
            (MemberState::UpToDate, _) => Self::Done,
            (_, Some(Awaited::Leave)) => Self::Remaining,
            (MemberState::Restarting, _) | (_, Some(Awaited::Deletion)) => Self::UnderWay,
            // It was restarted and is on its way, or it is what the others wait for.
            _ if !member.role.serves() => Self::UnderWay,
            _ => Self::Remaining,
        }
    }
}

impl Timeline {
    /// The change that the status reports; `None` if there is none.
    pub(crate) fn of(ensemble: &ZooKeeperEnsemble) -> Option<Self> {
        let status = ensemble.status.as_ref()?;
        let phase = status.phase?;
        let offset = ensemble.spec.id_offset.unwrap_or_default();
        let wanted: Vec<i32> = (1..=ensemble.spec.replicas).map(|id| id + offset).collect();
        let now: BTreeSet<i32> = status.voters.iter().copied().collect();
        let turns = turns(&ensemble.name_any(), offset, &now, &status.members);
        let lists_differ = now.len() != wanted.len();
        let at_rest = turns.iter().all(|turn| turn.stage == Stage::Done) && !lists_differ;
        if matches!(phase, Phase::Ready | Phase::Invalid | Phase::Deleting)
            || now.is_empty()
            || at_rest
        {
            return None;
        }
        let progressing = status.conditions.iter().find(|c| c.type_ == "Progressing");
        let since = progressing
            .filter(|condition| condition.status == "True")
            .map(|condition| condition.last_transition_time.0.to_string());
        let resizes = lists_differ || matches!(phase, Phase::Growing | Phase::Shrinking);
        if !resizes {
            let title = match phase {
                Phase::Starting | Phase::Recovering => "Members come up",
                _ => "Members restart one at a time, the leader last",
            };
            let steps = vec![Step {
                title: "Every member".to_owned(),
                stage: Stage::UnderWay,
                members: turns,
            }];
            let title = title.to_owned();
            return Some(Self {
                title,
                since,
                steps,
            });
        }
        let grows = match phase {
            Phase::Shrinking => false,
            Phase::Growing => true,
            _ => wanted.len() > now.len(),
        };
        let word = if grows { "Growing" } else { "Shrinking" };
        if ensemble.spec.membership_change == Some(MembershipChange::Reconfiguration) {
            return Some(Self {
                title: format!("{word} to {} without a restart", wanted.len()),
                since,
                steps: at_run_time(&now, &wanted, turns),
            });
        }
        Some(Self {
            title: format!("{word} to {} in steps of one member", wanted.len()),
            since,
            steps: chain(&ensemble.name_any(), offset, &now, &wanted, grows, turns),
        })
    }
}

/// The list that the members have, and the one on which they are to agree.
fn at_run_time(now: &BTreeSet<i32>, wanted: &[i32], turns: Vec<Turn>) -> Vec<Step> {
    let list = |ids: &mut dyn Iterator<Item = &i32>| -> String {
        let ids: Vec<String> = ids.map(ToString::to_string).collect();
        format!("Server list {{{}}}", ids.join(","))
    };
    let present = Step {
        title: list(&mut now.iter()),
        stage: Stage::Done,
        members: Vec::new(),
    };
    let next = Step {
        title: list(&mut wanted.iter()),
        stage: Stage::UnderWay,
        members: turns,
    };
    vec![present, next]
}

/// The steps of a size change: the list before the present one, the present one, and those that follow.
fn chain(
    name: &str,
    offset: i32,
    now: &BTreeSet<i32>,
    wanted: &[i32],
    grows: bool,
    turns: Vec<Turn>,
) -> Vec<Step> {
    let settled = turns.iter().all(|turn| turn.stage == Stage::Done);
    let mut steps = Vec::new();
    let first = now.first().copied().unwrap_or(offset + 1);
    let list = |size: usize| -> String {
        let size = i32::try_from(size).unwrap_or(i32::MAX);
        let ids: Vec<String> = (first..first.saturating_add(size))
            .map(|id| id.to_string())
            .collect();
        format!("Server list {{{}}}", ids.join(","))
    };
    let size = now.len();
    if !settled {
        let before = if grows {
            size.saturating_sub(1)
        } else {
            size + 1
        };
        if before > 0 {
            steps.push(Step {
                title: list(before),
                stage: Stage::Done,
                members: Vec::new(),
            });
        }
    }
    steps.push(Step {
        title: list(size),
        stage: if settled {
            Stage::Done
        } else {
            Stage::UnderWay
        },
        members: turns,
    });
    let mut at = size;
    while at != wanted.len() {
        let (next, what) = if wanted.len() > at {
            (at + 1, format!("{name}-{at} joins"))
        } else {
            (at - 1, format!("{name}-{} leaves", at - 1))
        };
        at = next;
        steps.push(Step {
            title: format!("{}: {what}", list(at)),
            stage: Stage::Remaining,
            members: Vec::new(),
        });
    }
    steps
}

/// Every member's turn: those that are done, the one that is under way, those that wait, the leader last.
fn turns(name: &str, offset: i32, now: &BTreeSet<i32>, members: &[MemberStatus]) -> Vec<Turn> {
    let mut turns: Vec<(Stage, bool, i32, Turn)> = members
        .iter()
        .map(|member| {
            let stage = Stage::of(member);
            let leads = member.role == bellwether_api::ensemble::MemberRole::Leader;
            let note = if stage == Stage::Done {
                String::new()
            } else {
                member.verdict.clone()
            };
            let turn = Turn {
                name: member.name.clone(),
                stage,
                note,
            };
            (
                stage,
                leads && stage == Stage::Remaining,
                member.server_id,
                turn,
            )
        })
        .collect();
    let missing = now
        .iter()
        .filter(|id| !members.iter().any(|m| m.server_id == **id));
    turns.extend(missing.map(|id| {
        let turn = Turn {
            name: format!("{name}-{}", id - 1 - offset),
            stage: Stage::UnderWay,
            note: "Its pod is to be created".to_owned(),
        };
        (Stage::UnderWay, false, *id, turn)
    }));
    turns.sort_by_key(|(stage, last, id, _)| (*stage, *last, *id));
    turns.into_iter().map(|(.., turn)| turn).collect()
}

#[cfg(test)]
mod tests;

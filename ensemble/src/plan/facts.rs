//! The facts that a disruptive step was decided on.
//!
//! Between the observation and the step other writes may have happened: another replica of the operator
//! may have restarted a member, a member may have crashed, the leader may have changed, the user may have
//! changed the spec. The executor therefore reads these facts again just before the step and takes it only
//! if they are the same. The facts contain everything that the planner's decisions about restarts depend on.
//! They omit what changes all the time and decides nothing, such as the last transaction of a server.

use std::collections::BTreeMap;
use std::fmt;

use bellwether_api::ensemble::MemberRole;

use crate::ids::Voters;
use crate::observation::{ClaimObservation, Observation, PodObservation, Revision};
use crate::plan::Step;

/// What was known of the ensemble when a step was planned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The generation of the spec.
    generation: Option<i64>,
    /// The StatefulSet: its pods' template as its controller has seen it, and how many it wants.
    set: Option<SetFacts>,
    /// The pods of members and observers, by name.
    pods: BTreeMap<String, PodFacts>,
    /// The volume claims, by name: uid, whether it is being deleted, and the lists that it carries.
    claims: BTreeMap<String, (String, bool, [Option<Voters>; 2])>,
    /// The servers that may start with an empty disk.
    initialize: Option<Voters>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct SetFacts {
    replicas: u16,
    template: Option<Revision>,
    update_revision: Option<String>,
    terminating: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PodFacts {
    uid: String,
    terminating: bool,
    revision: Option<String>,
    role: MemberRole,
    /// The list that its server judges quorums by, as the server reports it.
    voters: Option<Voters>,
    /// The version of that list, and that of one that it has stored since, where members change at run time.
    versions: [Option<u64>; 2],
    idle: bool,
    has_database: Option<bool>,
}

impl Facts {
    /// The facts of an observation of the ensemble whose spec has this generation.
    pub fn of(generation: Option<i64>, observation: &Observation) -> Self {
        let set = observation.stateful_set.as_ref();
        let pods = observation.pods.iter().chain(&observation.observers.pods);
        let claims = (observation.claims.iter())
            .chain(&observation.log_claims)
            .chain(&observation.observers.claims)
            .chain(&observation.observers.log_claims);
        let permission = observation.bootstrap.as_ref();
        Self {
            generation,
            set: set.map(|set| SetFacts {
                replicas: set.replicas,
                template: set.template.clone(),
                update_revision: set.update_revision.clone(),
                terminating: set.terminating,
            }),
            pods: pods
                .map(|pod| (pod.name.clone(), PodFacts::of(pod)))
                .collect(),
            claims: claims.map(|c| (c.name.clone(), claim(c))).collect(),
            initialize: permission.and_then(|p| p.initialize.clone()),
        }
    }

    /// What has changed for this step, in words; `None` if nothing has.
    ///
    /// Claims do not count for a restart: a pass that records a list on claims may also restart a member.
    pub fn change(&self, now: &Self, step: &Step) -> Option<String> {
        let counts = !matches!(step, Step::RestartMember { .. });
        let claims = counts && self.claims != now.claims;
        let same = self.generation == now.generation
            && self.set == now.set
            && self.pods == now.pods
            && self.initialize == now.initialize;
        if same && !claims {
            return None;
        }
        let changed = |(name, before): (&String, &PodFacts)| match now.pods.get(name) {
            None => Some(format!("pod {name} does not exist any more")),
            Some(after) if after.uid != before.uid => Some(format!("pod {name} was replaced")),
            Some(after) if after != before => Some(format!("{name} is {after}, and was {before}")),
            Some(_) => None,
        };
        let pods = self.pods.iter().find_map(changed);
        let new = now.pods.keys().find(|name| !self.pods.contains_key(*name));
        let new = new.map(|name| format!("pod {name} is new"));
        Some(pods.or(new).unwrap_or_else(|| {
            let what = if self.generation != now.generation {
                "the spec"
            } else if self.set != now.set {
                "the StatefulSet"
            } else if claims {
                "a volume claim"
            } else {
                "the permission to start with an empty disk"
            };
            format!("{what} changed")
        }))
    }
}

fn claim(claim: &ClaimObservation) -> (String, bool, [Option<Voters>; 2]) {
    let lists = [claim.voters.clone(), claim.next.clone()];
    (claim.uid.clone(), claim.terminating, lists)
}

impl PodFacts {
    fn of(pod: &PodObservation) -> Self {
        Self {
            uid: pod.uid.clone(),
            terminating: pod.terminating,
            revision: pod.controller_revision.clone(),
            role: pod.server.role(),
            voters: pod.server.voters().cloned(),
            versions: [
                pod.list_version(),
                pod.volumes.as_ref().and_then(|v| v.stored_list),
            ],
            idle: pod.is_idle(),
            has_database: pod.volumes.as_ref().map(|v| v.has_database),
        }
    }
}

impl fmt::Display for PodFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.terminating {
            return f.write_str("being deleted");
        }
        write!(f, "{}", self.role)?;
        match &self.voters {
            Some(voters) => write!(f, " of {{{voters}}}"),
            None if self.idle => f.write_str(", in no quorum"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ids::ServerId;
    use crate::observation::{PodState, ServerReport};
    use crate::plan::Expect;

    use super::*;

    fn observation(role: MemberRole) -> Observation {
        let pod = |ordinal: u16, role| PodObservation {
            name: format!("zk-{ordinal}"),
            ordinal,
            uid: ordinal.to_string(),
            resource_version: "1".to_owned(),
            revision: None,
            controller_revision: Some("a".to_owned()),
            template_hash: None,
            controller: None,
            failing_container: None,
            silent_since: None,
            terminating: false,
            state: PodState::Running,
            ready: true,
            unready_since: None,
            created: Default::default(),
            node: None,
            server: ServerReport::Serving {
                role,
                zxid: 7,
                voters: Voters::first(3, 0),
                observers: Default::default(),
                version: 0,
            },
            volumes: None,
            presents: None,
            credentials: Default::default(),
            client_authority: None,
        };
        Observation {
            pods: vec![pod(0, MemberRole::Leader), pod(1, role)],
            ..Default::default()
        }
    }

    #[test]
    fn the_last_transaction_is_no_fact_of_a_step() {
        let before = observation(MemberRole::Follower);
        let mut after = before.clone();
        after.pods[0].server = ServerReport::Serving {
            role: MemberRole::Leader,
            zxid: 8,
            voters: Voters::first(3, 0),
            observers: Default::default(),
            version: 0,
        };
        after.pods[0].resource_version = "2".to_owned();
        let facts = |o: &Observation| Facts::of(Some(1), o);
        assert_eq!(facts(&before).change(&facts(&after), &restart()), None);
    }

    #[test]
    fn whatever_decides_about_a_restart_is_a_fact_of_it() {
        let before = Facts::of(Some(1), &observation(MemberRole::Follower));
        let says = |now: Facts| before.change(&now, &restart()).unwrap();
        let leads = Facts::of(Some(1), &observation(MemberRole::Leader));
        let expected = "zk-1 is leader of {1,2,3}, and was follower of {1,2,3}";
        assert_eq!(says(leads), expected);
        let mut gone = observation(MemberRole::Follower);
        gone.pods.pop();
        assert_eq!(
            says(Facts::of(Some(1), &gone)),
            "pod zk-1 does not exist any more"
        );
        let mut replaced = observation(MemberRole::Follower);
        replaced.pods[1].uid = "9".to_owned();
        assert_eq!(says(Facts::of(Some(1), &replaced)), "pod zk-1 was replaced");
        let mut deleted = observation(MemberRole::Follower);
        deleted.pods[1].terminating = true;
        let expected = "zk-1 is being deleted, and was follower of {1,2,3}";
        assert_eq!(says(Facts::of(Some(1), &deleted)), expected);
        let changed = Facts::of(Some(2), &observation(MemberRole::Follower));
        assert_eq!(says(changed), "the spec changed");
        let mut permitted = observation(MemberRole::Follower);
        permitted.bootstrap = Some(crate::observation::BootstrapPermission {
            initialize: Some(Voters::first(1, 0)),
            ..Default::default()
        });
        assert!(says(Facts::of(Some(1), &permitted)).contains("empty disk"));
    }

    #[test]
    fn claims_are_facts_of_their_deletion_and_not_of_a_restart() {
        let before = Facts::of(Some(1), &observation(MemberRole::Follower));
        let mut claims = observation(MemberRole::Follower);
        claims.claims.push(ClaimObservation::default());
        let now = Facts::of(Some(1), &claims);
        assert_eq!(before.change(&now, &restart()), None);
        let deletion = Step::DeleteClaim {
            claim: "data-zk-2".to_owned(),
            uid: "1".to_owned(),
            resource_version: "1".to_owned(),
            id: ServerId(3),
            reason: String::new(),
        };
        let change = before.change(&now, &deletion);
        assert_eq!(change.as_deref(), Some("a volume claim changed"));
        let edits: [fn(&mut ClaimObservation); 3] = [
            |c| c.uid = "another".to_owned(),
            |c| c.terminating = true,
            |c| c.voters = Some(Voters::first(3, 0)),
        ];
        for edit in edits {
            let mut changed = claims.clone();
            edit(&mut changed.claims[0]);
            let change = now.change(&Facts::of(Some(1), &changed), &deletion);
            assert_eq!(change.as_deref(), Some("a volume claim changed"));
        }
        assert_eq!(now.change(&now, &deletion), None);
    }

    fn restart() -> Step {
        Step::RestartMember {
            pod: "zk-1".to_owned(),
            uid: "1".to_owned(),
            resource_version: "1".to_owned(),
            id: ServerId(2),
            expect: Expect::Follower,
            reason: String::new(),
        }
    }
}

use bellwether_api::election::{LeaderElectionStatus, Projections};

use super::*;
use crate::projection::tests::subject;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// An election in which the candidate in the pod of this name leads since second 100.
fn led_by(pod: &str, token: &str) -> Subject {
    let leader = Leader {
        identity: pod.to_owned(),
        node: format!("node-of-{pod}"),
        fencing_token: Some(token.to_owned()),
        ..Leader::default()
    };
    let status = LeaderElectionStatus {
        leader: Some(leader).filter(|leader| !leader.identity.is_empty()),
        ..LeaderElectionStatus::default()
    };
    Subject {
        owned: Some(at(100)),
        ..subject(Projections::default(), status)
    }
}

fn pod(name: &str) -> PodFacts {
    PodFacts {
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
        began: Some(at(90)),
        ..PodFacts::default()
    }
}

struct Story {
    terms: Terms,
    subject: Subject,
    done: Done,
    now: i64,
}

/// What the operator did: whether it evicted the pod a, and the token of the leader that it asked.
#[derive(Clone, Copy, Default)]
struct Done {
    evicted: bool,
    asked: Option<&'static str>,
}

impl Deeds for Done {
    fn evicted(&self, uid: &str) -> bool {
        self.evicted && uid == "uid-of-a"
    }

    fn asked(&self, token: &str) -> bool {
        self.asked == Some(token)
    }
}

impl Story {
    fn begin() -> Self {
        let mut story = Self::unseen();
        story.sees(&[pod("a"), pod("b")]);
        story
    }

    fn unseen() -> Self {
        Self {
            terms: Terms::default(),
            subject: led_by("a", "7"),
            done: Done::default(),
            now: 200,
        }
    }

    /// These pods exist.
    fn sees(&mut self, pods: &[PodFacts]) {
        let mut all = Pods::new("shop");
        for pod in pods {
            all.insert(pod.clone());
        }
        let leader = self.subject.leader();
        let binding = leader.map(|leader| match all.get(&leader.identity) {
            // As where it is not known since when the leader leads.
            Some(pod) if pod.began.is_none_or(|began| began <= at(100)) => {
                Binding::Pod(leader.identity.clone())
            }
            Some(_) => Binding::Younger(leader.identity.clone()),
            None => Binding::NotFound,
        });
        let (binding, done) = (binding.as_ref(), self.done);
        self.terms
            .look(&self.subject, binding, &all, &done, at(self.now));
    }

    fn tells(&self) -> (Option<EndOfTerm>, bool) {
        let outlook = self.terms.present(&self.done).unwrap();
        (outlook.cause, outlook.has_ended)
    }
}

#[test]
fn a_leader_whose_pod_runs_gave_up_or_lost_its_session() {
    let mut story = Story::begin();
    assert_eq!(story.tells(), (Some(EndOfTerm::ReleasedOrExpired), false));
    story.subject = led_by("b", "9");
    story.sees(&[pod("a"), pod("b")]);
    let last = story.terms.last().unwrap();
    assert_eq!(last.cause, Some(EndOfTerm::ReleasedOrExpired));
    assert_eq!(
        (last.node.as_str(), last.token.as_deref()),
        ("node-of-a", Some("7"))
    );
}

#[test]
fn a_pod_that_is_deleted_leads_on_until_it_is_gone() {
    let mut story = Story::begin();
    let terminating = PodFacts {
        terminating: true,
        ..pod("a")
    };
    story.sees(&[terminating]);
    assert_eq!(story.tells(), (Some(EndOfTerm::Deleted), false));
    story.sees(&[]);
    assert_eq!(story.tells(), (Some(EndOfTerm::Deleted), true));
    // Its successor of the same name is another pod.
    let successor = PodFacts {
        uid: "another".to_owned(),
        ..pod("a")
    };
    story.sees(&[successor]);
    assert_eq!(story.tells(), (Some(EndOfTerm::Deleted), true));
}

#[test]
fn an_eviction_is_told_from_a_deletion_and_from_a_rollout() {
    let evicted = PodFacts {
        terminating: true,
        is_disrupted: true,
        ..pod("a")
    };
    let mut story = Story::begin();
    story.sees(std::slice::from_ref(&evicted));
    story.sees(&[]);
    assert_eq!(story.tells(), (Some(EndOfTerm::Evicted), true));
    let mut story = Story::begin();
    story.done.evicted = true;
    story.sees(&[evicted]);
    // The rollout forgets a pod that is gone.
    story.done.evicted = false;
    story.sees(&[]);
    assert_eq!(story.tells(), (Some(EndOfTerm::RolledOut), true));
}

#[test]
fn a_container_that_ended_stays_the_cause_while_the_next_one_runs() {
    let with = |began: Option<i64>| PodFacts {
        began: began.map(at),
        ..pod("a")
    };
    let mut story = Story::begin();
    story.sees(&[with(None)]);
    assert_eq!(story.tells(), (Some(EndOfTerm::Restarted), true));
    story.sees(&[with(Some(120))]);
    assert_eq!(story.tells(), (Some(EndOfTerm::Restarted), true));
    // The clocks of two machines differ.
    let mut story = Story::begin();
    story.sees(&[with(Some(101))]);
    assert_eq!(story.tells(), (Some(EndOfTerm::ReleasedOrExpired), false));
}

#[test]
fn a_pod_that_was_never_seen_to_run_has_not_ended() {
    let mut story = Story::unseen();
    let starting = PodFacts {
        began: None,
        ..pod("a")
    };
    story.sees(&[starting]);
    assert_eq!(story.tells(), (None, false));
    story.sees(&[]);
    assert_eq!(story.tells(), (None, false));
}

#[test]
fn a_leader_that_was_asked_handed_over_unless_its_process_had_ended() {
    let mut story = Story::begin();
    story.done.asked = Some("6");
    assert_eq!(story.tells().0, Some(EndOfTerm::ReleasedOrExpired));
    story.done.asked = Some("7");
    assert_eq!(story.tells().0, Some(EndOfTerm::HandedOver));
    let ended = PodFacts {
        began: None,
        ..pod("a")
    };
    story.sees(&[ended]);
    assert_eq!(story.tells().0, Some(EndOfTerm::Restarted));
    // The next one leads before anybody looked again.
    let mut story = Story::begin();
    story.done.asked = Some("7");
    story.subject = led_by("b", "9");
    story.sees(&[pod("a"), pod("b")]);
    story.done.asked = None;
    story.sees(&[pod("a"), pod("b")]);
    assert_eq!(
        story.terms.last().unwrap().cause,
        Some(EndOfTerm::HandedOver)
    );
}

#[test]
fn what_is_learned_a_moment_later_still_counts() {
    let ended = PodFacts {
        began: None,
        ..pod("a")
    };
    for (after, cause) in [(3, EndOfTerm::Restarted), (4, EndOfTerm::ReleasedOrExpired)] {
        let mut story = Story::begin();
        story.subject = led_by("b", "9");
        story.sees(&[pod("a"), pod("b")]);
        story.now += after;
        story.sees(&[ended.clone(), pod("b")]);
        assert_eq!(story.terms.last().unwrap().cause, Some(cause));
    }
}

#[test]
fn the_term_before_is_remembered_while_nobody_leads() {
    let mut story = Story::begin();
    story.sees(&[]);
    story.subject = led_by("", "");
    story.sees(&[pod("b")]);
    assert!(story.terms.present(&story.done).is_none());
    story.subject = led_by("b", "9");
    story.sees(&[pod("b")]);
    assert_eq!(story.terms.last().unwrap().cause, Some(EndOfTerm::Deleted));
    assert_eq!(story.tells(), (Some(EndOfTerm::ReleasedOrExpired), false));
}

#[test]
fn each_cause_that_is_known_has_a_sentence_that_names_the_leader() {
    for cause in EndOfTerm::ALL {
        let told = sentence(cause, "shop-0");
        let names = told.is_some_and(|told| told.contains("shop-0") && told.ends_with('.'));
        assert_eq!(names, cause != EndOfTerm::ReleasedOrExpired, "{cause:?}");
    }
}

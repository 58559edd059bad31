//! Labels: who has which, and in what order they move.

use bellwether_api::labels::{DELETION_COST, LABELLED_BY, ROLE_LABELLED};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};

use super::*;

/// A pod as the API server keeps it.
#[derive(Clone, Debug, Default)]
struct Stored {
    uid: String,
    labels: BTreeMap<String, String>,
    /// What each field manager set.
    managers: BTreeMap<String, BTreeMap<String, String>>,
}

impl Stored {
    fn meta(&self, name: &str) -> ObjectMeta {
        let managed = self.managers.iter().map(|(manager, labels)| {
            let keys = labels.keys().map(|key| (format!("f:{key}"), json!({})));
            let keys: serde_json::Map<_, _> = keys.collect();
            ManagedFieldsEntry {
                manager: Some(manager.clone()),
                operation: Some("Apply".to_owned()),
                fields_v1: Some(FieldsV1(json!({ "f:metadata": { "f:labels": keys } }))),
                ..ManagedFieldsEntry::default()
            }
        });
        ObjectMeta {
            name: Some(name.to_owned()),
            uid: Some(self.uid.clone()),
            labels: Some(self.labels.clone()),
            managed_fields: Some(managed.collect()),
            ..ObjectMeta::default()
        }
    }

    /// Server-side apply without force. Whether it was accepted.
    fn apply(&mut self, manager: &str, labels: &BTreeMap<String, String>) -> bool {
        let foreign = |key: &String| {
            let owned = |labels: &BTreeMap<String, String>| labels.contains_key(key);
            let mine = self.managers.get(manager).is_some_and(owned);
            self.labels.contains_key(key) && !mine
        };
        let conflicts =
            |(key, value): (&String, &String)| foreign(key) && self.labels.get(key) != Some(value);
        if labels.iter().any(conflicts) {
            return false;
        }
        let before = self.managers.remove(manager).unwrap_or_default();
        for key in before.keys().filter(|key| !labels.contains_key(*key)) {
            let others = self.managers.values();
            if !others.into_iter().any(|labels| labels.contains_key(key)) {
                self.labels.remove(key);
            }
        }
        self.labels.extend(labels.clone());
        if !labels.is_empty() {
            self.managers.insert(manager.to_owned(), labels.clone());
        }
        true
    }
}

fn marks_of(pods: &BTreeMap<String, Stored>, uid: &str) -> BTreeMap<String, AppliedLabels> {
    let all = pods.iter().filter_map(|(name, pod)| {
        let applied = applied_labels(&pod.meta(name)).remove(uid)?;
        Some((name.clone(), applied))
    });
    all.collect()
}

#[test]
fn a_patch_names_the_version_that_it_was_decided_from() {
    let mut meta = Stored {
        uid: "u".to_owned(),
        ..Stored::default()
    }
    .meta("a");
    meta.resource_version = Some("5".to_owned());
    meta.namespace = Some("shop".to_owned());
    let mut change = Change {
        pod: "a".to_owned(),
        pod_uid: "u".to_owned(),
        labels: BTreeMap::from([("role".to_owned(), "leader".to_owned())]),
        is_costly: false,
        only_after_all: true,
    };
    let set = patch(("uid-1", "app"), &meta, &change);
    change.is_costly = true;
    let costly = patch(("uid-1", "app"), &meta, &change);
    assert_eq!(costly["metadata"]["annotations"][DELETION_COST], "100");
    change.labels.clear();
    let back = patch(("uid-1", "app"), &meta, &change);
    insta::assert_yaml_snapshot!(json!({ "set": set, "take back": back }));
    assert_eq!(set["metadata"]["labels"][ROLE_LABELLED], "true");
    assert_eq!(
        set["metadata"]["annotations"][format!("{LABELLED_BY}uid-1")],
        "app"
    );
}

#[test]
fn labels_move_off_the_old_leader_first() {
    let facts = [
        pod("a", "10.0.0.1"),
        pod("b", "10.0.0.2"),
        pod("c", "10.0.0.3"),
    ];
    let projection = PodLabelsProjection::default();
    let before = Roles::new(&projection, Some(&facts[0]), facts[..2].iter());
    let mut pods: BTreeMap<String, Stored> = BTreeMap::new();
    for fact in &facts {
        let stored = Stored {
            uid: fact.uid.clone(),
            ..Stored::default()
        };
        pods.insert(fact.name.clone(), stored);
    }
    for change in changes(&before, &BTreeMap::new()) {
        assert!(
            pods.get_mut(&change.pod)
                .unwrap()
                .apply("bellwether-election.x", &change.labels)
        );
    }
    let after = Roles::new(&projection, Some(&facts[1]), facts[1..].iter());
    let told: Vec<_> = changes(&after, &marks_of(&pods, "x"))
        .into_iter()
        .map(|change| {
            let role = change.labels.into_values().next();
            (change.pod, role, change.only_after_all)
        })
        .collect();
    let role = |value: &str| Some(value.to_owned());
    assert_eq!(
        told,
        [
            ("a".to_owned(), None, false),
            ("b".to_owned(), role("leader"), true),
            ("c".to_owned(), role("candidate"), false),
        ]
    );
    // A pod that carries only the mark of an election is cleaned up, too.
    let bare = AppliedLabels {
        pod_uid: "u".to_owned(),
        ..AppliedLabels::default()
    };
    let bare = BTreeMap::from([("a".to_owned(), bare)]);
    assert_eq!(changes(&Roles::default(), &bare).len(), 1);
}

proptest! {
    /// However leaders change, whichever writes fail, whatever keys the spec names: at no moment do two pods
    /// carry the leader's value of one election, and a label of another client is never changed.
    #[test]
    fn never_two_leaders_are_labelled(
        steps in proptest::collection::vec((names(), 0..3_usize, any::<u32>(), 0..12_usize), 1..12),
        foreign in 0..5_usize,
    ) {
        let keys = ["role", "zookeeper.bellwether.dev/role"];
        let all: Vec<PodFacts> = (0..5).map(|n| pod(&format!("p{n}"), &format!("10.0.0.{n}"))).collect();
        let mut pods: BTreeMap<String, Stored> = all
            .iter()
            .map(|facts| {
                let stored = Stored { uid: facts.uid.clone(), ..Stored::default() };
                (facts.name.clone(), stored)
            })
            .collect();
        let theirs = BTreeMap::from([("role".to_owned(), "theirs".to_owned())]);
        pods.get_mut(&format!("p{foreign}")).unwrap().apply("somebody", &theirs);
        for (people, key, failing, replaced) in steps {
            if let Some(pod) = pods.get_mut(&format!("p{replaced}")) {
                // Another pod of the same name; the facts are still those of the old one.
                let foreign = pod.managers.contains_key("somebody");
                *pod = Stored { uid: pod.uid.clone(), ..Stored::default() };
                if foreign {
                    pod.apply("somebody", &theirs);
                }
            }
            let people: Vec<&PodFacts> = people.iter().map(|n| &all[*n]).collect();
            let roles = match keys.get(key) {
                Some(key) => {
                    let projection = PodLabelsProjection { key: (*key).to_owned(), ..PodLabelsProjection::default() };
                    Roles::new(&projection, people.first().copied(), people.iter().copied())
                }
                None => Roles::default(),
            };
            let mut failed = false;
            for (at, change) in changes(&roles, &marks_of(&pods, "x")).into_iter().enumerate() {
                if change.only_after_all && failed {
                    continue;
                }
                let works = failing & (1 << (at % 32)) == 0;
                let pod = pods.get_mut(&change.pod).unwrap();
                failed |= !(works && pod.apply("bellwether-election.x", &change.labels));
                let applied_labels = marks_of(&pods, "x");
                let leaders = applied_labels.values().filter(|applied| applied.labels.values().any(|v| v == "leader"));
                prop_assert!(leaders.count() <= 1, "two leaders: {applied_labels:?}");
                prop_assert_eq!(&pods[&format!("p{foreign}")].labels["role"], "theirs");
            }
            // When nothing fails, every pod has the right label afterwards.
            if failing == 0 && !failed {
                let applied_labels = marks_of(&pods, "x");
                prop_assert_eq!(changes(&roles, &applied_labels), vec![]);
            }
        }
    }
}

//! What is known while a page is open, and the document that one look shows of it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_api::ZooKeeperEnsemble;
use serde::{Deserialize, Serialize};

use crate::view::Tone;
use crate::view::election::{ElectionDetail, ElectionRow};
use crate::view::ensemble::{EnsembleView, PodFacts};

/// How many elections a page shows if it does not ask for more.
const LIMIT: usize = 50;
/// How many elections a page may ask for.
const MAX_LIMIT: usize = 500;
/// How many ensembles a page shows.
const ENSEMBLES: usize = 20;
/// How many namespaces a page offers to choose from.
const NAMESPACES: usize = 500;
/// How many candidates of the election that is open a page shows.
pub(super) const CANDIDATES: usize = 50;

/// Namespace and name.
pub(super) type Key = (String, String);

/// What one page asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Ask {
    /// Only this namespace; all of them if it is empty.
    pub namespace: String,
    /// Only what has this in its name, its leader or its dialect; upper and lower case are the same.
    pub q: String,
    /// Only what a person should look at.
    pub attention: bool,
    /// How many elections.
    pub limit: Option<usize>,
    /// The election that is open, as `namespace/name`.
    pub election: String,
}

impl Ask {
    /// The election that is open.
    pub(super) fn opened(&self) -> Option<Key> {
        let (namespace, name) = self.election.split_once('/')?;
        Some((namespace.to_owned(), name.to_owned()))
    }

    fn limit(&self) -> usize {
        self.limit.unwrap_or(LIMIT).clamp(1, MAX_LIMIT)
    }

    /// Whether something of this namespace with these words is asked for; `q` in lower case.
    fn takes<'a>(&self, q: &str, namespace: &str, words: impl Iterator<Item = &'a str>) -> bool {
        let mut words = words;
        (self.namespace.is_empty() || self.namespace == namespace)
            && (q.is_empty() || words.any(|word| word.to_lowercase().contains(q)))
    }
}

/// An election as it is kept: as little as a list shows, since there may be ten thousand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    /// What the list shows.
    pub row: ElectionRow,
    /// The version of the object, which changes with all that the list does not show too.
    pub version: String,
}

/// Why data may be old.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Trouble {
    /// Since when, in UTC.
    pub since: String,
    /// What went wrong.
    pub message: String,
}

/// All that is known while a page is open.
#[derive(Debug, Default)]
pub(super) struct Store {
    /// The ensembles.
    pub ensembles: BTreeMap<Key, ZooKeeperEnsemble>,
    /// The pods of their members.
    pub pods: BTreeMap<Key, PodFacts>,
    /// The elections.
    pub elections: BTreeMap<Key, Listed>,
    /// The lists that are not complete yet.
    pub loading: BTreeSet<String>,
    /// What went wrong, by what it happened to.
    pub troubles: BTreeMap<String, Trouble>,
}

/// Who answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Operator {
    /// The operator's version.
    pub version: &'static str,
    /// The replica: its pod.
    pub identity: String,
}

/// Some of many.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Part<T> {
    /// How many there are.
    pub total: usize,
    /// How many match what was asked for.
    pub matching: usize,
    /// How many of those a person should look at.
    pub attention: usize,
    /// The first of them.
    pub shown: Vec<T>,
}

/// The election that is open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Opened {
    /// All of it.
    Found(Box<ElectionDetail>),
    /// The operator's namespaces contain no election of this name.
    Missing(String),
    /// It could not be read.
    Unreadable(String),
}

/// What one look shows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Document {
    /// Who answers.
    pub operator: Operator,
    /// Whether everything was read once.
    pub complete: bool,
    /// Why the data may be old.
    pub trouble: Option<Trouble>,
    /// The namespaces in which there is anything.
    pub namespaces: Vec<String>,
    /// The ensembles.
    pub ensembles: Part<EnsembleView>,
    /// The elections.
    pub elections: Part<ElectionRow>,
    /// The election that is open.
    pub election: Option<Opened>,
}

impl Store {
    /// What a page shows that asks for this; `election` is the one that is open.
    pub(super) fn document(
        &self,
        operator: &Operator,
        ask: &Ask,
        election: Option<Opened>,
    ) -> Document {
        let namespaces: BTreeSet<&String> = self
            .ensembles
            .keys()
            .chain(self.elections.keys())
            .map(|(namespace, _)| namespace)
            .collect();
        let troubles = self.troubles.values();
        Document {
            operator: operator.clone(),
            complete: self.loading.is_empty(),
            trouble: troubles.min_by(|a, b| a.since.cmp(&b.since)).cloned(),
            namespaces: namespaces.into_iter().take(NAMESPACES).cloned().collect(),
            ensembles: self.ensembles(ask),
            elections: self.elections(ask),
            election,
        }
    }

    fn ensembles(&self, ask: &Ask) -> Part<EnsembleView> {
        let q = ask.q.to_lowercase();
        let mut part = Part {
            total: self.ensembles.len(),
            matching: 0,
            attention: 0,
            shown: Vec::new(),
        };
        for ((namespace, name), ensemble) in &self.ensembles {
            let full = format!("{namespace}/{name}");
            if !ask.takes(&q, namespace, std::iter::once(full.as_str())) {
                continue;
            }
            let pod = |pod: &str| self.pods.get(&(namespace.clone(), pod.to_owned()));
            let view = EnsembleView::of(ensemble, pod);
            let attention = view.needs_attention();
            part.attention += usize::from(attention);
            if ask.attention && !attention {
                continue;
            }
            part.matching += 1;
            if part.shown.len() < ENSEMBLES {
                part.shown.push(view);
            }
        }
        part
    }

    fn elections(&self, ask: &Ask) -> Part<ElectionRow> {
        let q = ask.q.to_lowercase();
        let mut part = Part {
            total: self.elections.len(),
            matching: 0,
            attention: 0,
            shown: Vec::new(),
        };
        for ((namespace, name), Listed { row, .. }) in &self.elections {
            let full = format!("{namespace}/{name}");
            let words = [Some(&full), row.leader.as_ref(), row.pod.as_ref()];
            let words = words.into_iter().flatten().chain([&row.dialect]);
            if !ask.takes(&q, namespace, words.map(String::as_str)) {
                continue;
            }
            let attention = row.tone != Tone::Good;
            part.attention += usize::from(attention);
            if ask.attention && !attention {
                continue;
            }
            part.matching += 1;
            if part.shown.len() < ask.limit() {
                part.shown.push(row.clone());
            }
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn listed(namespace: &str, name: &str, leader: &str, tone: Tone) -> (Key, Listed) {
        let row = ElectionRow {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            dialect: "Kazoo".to_owned(),
            leader: Some(leader.to_owned()),
            pod: None,
            candidates: 2,
            token: Some("4294967300".to_owned()),
            since: None,
            state: "readable".to_owned(),
            tone,
        };
        let version = "1".to_owned();
        let key = (namespace.to_owned(), name.to_owned());
        (key, Listed { row, version })
    }

    fn operator() -> Operator {
        Operator {
            version: "1.2.3",
            identity: "bellwether-0".to_owned(),
        }
    }

    /// Ten thousand elections; every hundredth is unreadable.
    fn crowded() -> Store {
        let elections = (0..10_000).map(|n| {
            let namespace = if n < 4000 { "shop" } else { "bank" };
            let tone = if n % 100 == 0 { Tone::Bad } else { Tone::Good };
            let leader = format!("10.0.0.{}:80", n % 256);
            listed(namespace, &format!("e-{n:05}"), &leader, tone)
        });
        Store {
            elections: elections.collect(),
            ..Store::default()
        }
    }

    fn ask(text: &serde_json::Value) -> Ask {
        serde_json::from_value(text.clone()).unwrap()
    }

    #[test]
    fn of_ten_thousand_elections_the_first_are_shown_and_all_are_counted() {
        let store = crowded();
        let all = store.document(&operator(), &Ask::default(), None);
        let counts = |part: &Part<ElectionRow>| {
            (part.total, part.matching, part.attention, part.shown.len())
        };
        assert_eq!(counts(&all.elections), (10_000, 10_000, 100, LIMIT));
        assert_eq!(all.namespaces, ["bank", "shop"]);
        let size = serde_json::to_string(&all).unwrap().len();
        assert!(size < 20_000, "{size} bytes");

        let one = ask(&json!({ "namespace": "shop", "q": "E-0012", "limit": 3 }));
        let some = store.document(&operator(), &one, None).elections;
        assert_eq!(counts(&some), (10_000, 10, 0, 3));
        let troubled = ask(&json!({ "namespace": "bank", "attention": true }));
        let some = store.document(&operator(), &troubled, None).elections;
        assert_eq!(counts(&some), (10_000, 60, 60, LIMIT));
        let greedy = ask(&json!({ "limit": 1_000_000 }));
        let some = store.document(&operator(), &greedy, None).elections;
        assert_eq!(some.shown.len(), MAX_LIMIT);
    }

    #[test]
    fn leaders_and_dialects_are_searched_too() {
        let store = crowded();
        let count = |q: &str| {
            let ask = ask(&json!({ "q": q }));
            store.document(&operator(), &ask, None).elections.matching
        };
        assert_eq!(count("10.0.0.255:80"), 39);
        assert_eq!(count("kazoo"), 10_000);
        assert_eq!(count("nobody"), 0);
    }

    #[test]
    fn an_ensemble_is_shown_with_its_pods_and_what_is_wrong() {
        let mut store = Store::default();
        let key = |name: &str| ("shop".to_owned(), name.to_owned());
        let ensemble = json!({
            "apiVersion": "zookeeper.bellwether.dev/v1alpha1",
            "kind": "ZooKeeperEnsemble",
            "metadata": { "name": "main", "namespace": "shop", "generation": 1 },
            "spec": { "replicas": 3 },
            "status": {
                "observedGeneration": 1, "phase": "Ready", "message": "All 3 members serve.",
                "members": [
                    { "name": "main-0", "serverId": 1, "role": "Leader", "state": "UpToDate", "verdict": "UpToDate" },
                ],
                "conditions": [{
                    "type": "Degraded", "status": "True", "reason": "VolumeNearlyFull",
                    "message": "80 %", "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            },
        });
        let quiet = json!({
            "apiVersion": "zookeeper.bellwether.dev/v1alpha1",
            "kind": "ZooKeeperEnsemble",
            "metadata": { "name": "other", "namespace": "shop" },
            "spec": { "replicas": 3 },
            "status": { "phase": "Ready" },
        });
        for (name, object) in [("main", ensemble), ("other", quiet)] {
            let object = serde_json::from_value(object).unwrap();
            store.ensembles.insert(key(name), object);
        }
        let facts = PodFacts {
            ready: true,
            image: None,
        };
        store.pods.insert(key("main-0"), facts);
        let document = store.document(&operator(), &ask(&json!({ "attention": true })), None);
        let part = document.ensembles;
        assert_eq!((part.total, part.matching, part.attention), (2, 1, 1));
        assert_eq!(part.shown[0].members[0].ready, Some(true));
        assert_eq!(part.shown[0].conditions[0].tone, Tone::Bad);
    }

    #[test]
    fn data_that_may_be_old_are_told_as_such_since_the_first_trouble() {
        let mut store = Store::default();
        store.loading.insert("pods".to_owned());
        for (what, since) in [
            ("pods", "2026-01-01T00:00:02Z"),
            ("api", "2026-01-01T00:00:01Z"),
        ] {
            let trouble = Trouble {
                since: since.to_owned(),
                message: format!("{what} cannot be read"),
            };
            store.troubles.insert(what.to_owned(), trouble);
        }
        let document = store.document(&operator(), &Ask::default(), None);
        assert!(!document.complete);
        assert_eq!(document.trouble.unwrap().message, "api cannot be read");
    }
}

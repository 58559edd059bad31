//! The whole: manifests that are good, and those that each break one rule.

use std::fs;
use std::path::{Path as FilePath, PathBuf};

use super::*;

fn here(folder: &str) -> PathBuf {
    FilePath::new(env!("CARGO_MANIFEST_DIR")).join(folder)
}

fn files(folder: &str) -> Vec<(String, String)> {
    let mut files: Vec<_> = fs::read_dir(here(folder))
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

/// What a header such as `# field: spec.replicas` says.
fn header<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    let start = format!("# {key}: ");
    text.lines().find_map(|line| line.strip_prefix(&start))
}

/// The object as it was, for the manifests that change one.
fn against(name: &str) -> Existing {
    let old = here("tests/bad").join(name.replace(".yaml", ".old.yaml"));
    match fs::read_to_string(old) {
        Ok(text) => Existing::parse(&text).unwrap(),
        Err(_) => Existing::default(),
    }
}

#[test]
fn each_bad_manifest_is_refused_at_its_field() {
    let linter = Linter::new().unwrap();
    let mut wrong = Vec::new();
    let bad = files("tests/bad");
    assert!(bad.len() > 60);
    for (name, text) in &bad {
        let report = linter.check(text, &against(name));
        let found: Vec<(&str, Source)> = report
            .findings
            .iter()
            .filter(|f| f.severity == Severity::Error)
            .map(|f| (f.field.as_str(), f.source))
            .collect();
        // An old object, to which something is changed, is a good one.
        let expected = header(text, "field").map(|field| {
            let who: &[Source] = match header(text, "refused by") {
                Some("api") => &[Source::Schema, Source::Rule],
                Some("operator") => &[Source::Operator],
                Some("lint") => &[Source::Yaml],
                other => panic!("{name}: refused by {other:?}"),
            };
            (field, who)
        });
        let as_expected = match expected {
            None => found.is_empty(),
            Some((field, who)) => {
                !found.is_empty() && found.iter().all(|(f, s)| *f == field && who.contains(s))
            }
        };
        if !as_expected {
            wrong.push(format!("{name}: {:#?}", report.findings));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// No rule is silently skipped: over all these manifests each rule held at least once, was broken
/// at least once, and could always be evaluated.
#[test]
fn every_rule_of_both_kinds_is_evaluated_both_ways() {
    fn count(schema: &Schema) -> usize {
        let below = schema.properties.values();
        let below = below.chain(schema.additional.as_deref());
        schema.rules.len()
            + below
                .chain(schema.items.as_deref())
                .map(count)
                .sum::<usize>()
    }
    let linter = Linter::new().unwrap();
    let all = files("tests/bad").into_iter().chain(files("tests/good"));
    for (name, text) in all {
        linter.check(&text, &against(&name));
    }
    // What did not change keeps every rule that compares.
    for (_, text) in files("tests/good") {
        linter.check(&text, &Existing::parse(&text).unwrap());
    }
    let evaluated = linter.evaluated.borrow();
    let one_way: Vec<_> = evaluated
        .iter()
        .filter(|(_, (held, broken))| *held == 0 || *broken == 0)
        .collect();
    assert!(one_way.is_empty(), "{one_way:#?}");
    let rules: usize = linter.kinds.values().map(count).sum();
    assert_eq!(evaluated.len(), rules);
    assert!(rules > 40, "{rules}");
}

#[test]
fn a_rule_that_cannot_be_evaluated_is_an_error() {
    let object = |rule: &str| {
        let schema = serde_json::json!({
            "type": "object",
            "properties": { "spec": { "type": "object", "properties": { "a": { "type": "integer" } },
                "x-kubernetes-validations": [{ "rule": rule, "message": "no" }] } },
        });
        let mut crd = ZooKeeperEnsemble::crd();
        let props = serde_json::from_value(schema).unwrap();
        crd.spec.versions[0]
            .schema
            .as_mut()
            .unwrap()
            .open_api_v3_schema = Some(props);
        Schema::of_crd(&crd)
    };
    let found = |rule: &str| {
        let linter = Linter {
            kinds: BTreeMap::from([("ZooKeeperEnsemble", object(rule).unwrap())]),
            evaluated: std::cell::RefCell::default(),
        };
        let text = "apiVersion: zookeeper.bellwether.dev/v1alpha1\nkind: ZooKeeperEnsemble\n\
                    metadata: {name: a}\nspec: {a: 1}\n";
        let report = linter.check(text, &Existing::default());
        let rules = report
            .findings
            .into_iter()
            .filter(|f| f.source == Source::Rule);
        rules.map(|f| f.message).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(found("self.a == 1"), "");
    assert_eq!(found("self.a == 2"), "Invalid value: no");
    assert!(found("self.b == 1").contains("cannot be evaluated"));
    assert!(found("url('x').getHost() == 'x'").contains("cannot be evaluated"));
    assert!(found("self.a").contains("neither true nor false"));
    assert!(object("self.a ==").is_err());
}

#[test]
fn good_manifests_have_no_findings() {
    let linter = Linter::new().unwrap();
    for (name, text) in files("tests/good") {
        let report = linter.check(&text, &Existing::default());
        assert!(report.findings.is_empty(), "{name}: {:#?}", report.findings);
        assert!(!report.checked.is_empty(), "{name}");
    }
}

#[test]
fn a_size_may_be_set_back_to_what_the_claims_ask_for() {
    let linter = Linter::new().unwrap();
    let text = |size: &str, log: &str| {
        format!(
            "apiVersion: zookeeper.bellwether.dev/v1alpha1\nkind: ZooKeeperEnsemble\n\
             metadata: {{name: main}}\nspec:\n  replicas: 3\n  version: 3.9.5\n\
             \x20 storage: {{size: {size}, transactionLog: {{size: {log}}}}}\n"
        )
    };
    let claims = "status: {storage: {size: 8Gi, transactionLogSize: 1Gi}}\n";
    let before = Existing::parse(&(text("80Gi", "10Gi") + claims)).unwrap();
    let refused = |size: &str, log: &str| -> Vec<String> {
        let report = linter.check(&text(size, log), &before);
        report.findings.into_iter().map(|f| f.field).collect()
    };
    assert_eq!(refused("80Gi", "10Gi"), [""; 0]);
    assert_eq!(refused("8Gi", "1024Mi"), [""; 0]);
    assert_eq!(refused("8191Mi", "1Gi"), ["spec.storage.size"]);
    assert_eq!(
        refused("8Gi", "1023Mi"),
        ["spec.storage.transactionLog.size"]
    );
    // Volumes that were kept may be larger than the spec. It can change otherwise all the same.
    let larger = "status: {storage: {size: 9Gi, transactionLogSize: 9Gi}}\n";
    let before = Existing::parse(&(text("8Gi", "8Gi") + larger)).unwrap();
    assert!(
        linter
            .check(&text("8Gi", "8Gi"), &before)
            .findings
            .is_empty()
    );
}

#[test]
fn a_finding_has_a_place_a_field_and_a_sentence() {
    let linter = Linter::new().unwrap();
    let text = "# two\nkind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\n---\napiVersion: zookeeper.bellwether.dev/v1alpha1\n\
                kind: ZooKeeperEnsemble\nmetadata:\n  name: main\nspec:\n  replicas: 4\n  storag: {}\n  version: 3.9.4\n";
    let report = linter.check(text, &Existing::default());
    let lines: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "11:13: error: spec.replicas: Invalid value: an even ensemble tolerates no more failures \
             than one member fewer; use 3 or 5",
            "12:3: error: spec.storag: unknown field; did you mean storage?",
        ]
    );
    assert_eq!(report.skipped, ["v1 ConfigMap/a"]);
    assert_eq!(report.checked, ["ZooKeeperEnsemble/main"]);
}

#[test]
fn what_the_operator_warns_of_is_a_warning() {
    let linter = Linter::new().unwrap();
    for (version, told) in [
        ("3.9.4", "CVE-2026-24281"),
        ("3.8.6", "ZOOKEEPER-4712"),
        ("3.9.77", "check that the release exists"),
    ] {
        let text = format!(
            "apiVersion: zookeeper.bellwether.dev/v1alpha1\nkind: ZooKeeperEnsemble\n\
             metadata:\n  name: main\nspec:\n  replicas: 3\n  version: {version}\n"
        );
        let report = linter.check(&text, &Existing::default());
        let found: Vec<_> = report
            .findings
            .iter()
            .map(|f| (f.severity, f.field.as_str()))
            .collect();
        assert_eq!(found, [(Severity::Warning, "spec.version")], "{version}");
        assert!(report.findings[0].message.contains(told), "{version}");
    }
}

/// As a real API server does: where null is allowed, the rules treat the field as absent; elsewhere
/// a default takes its place, or server-side apply refuses it.
#[test]
fn a_null_is_nothing_or_an_error() {
    let linter = Linter::new().unwrap();
    let found = |kind: &str, spec: &str| {
        let text = format!(
            "apiVersion: zookeeper.bellwether.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: a}}\nspec: {{{spec}}}\n"
        );
        let report = linter.check(&text, &Existing::default());
        let fields = report.findings.iter().map(|f| f.field.as_str());
        fields.collect::<Vec<_>>().join(" ")
    };
    for (spec, fields) in [
        ("jvm: null", ""),
        ("storage: null, version: null", ""),
        ("storage: {size: null}", ""),
        (
            "config: {minSessionTimeout: null, maxSessionTimeout: 5000}",
            "",
        ),
        ("paused: null", "spec.paused"),
        ("config: {additional: null}", "spec.config.additional"),
        (
            "config: {additional: {audit.enable: null}}",
            "spec.config.additional.audit.enable",
        ),
        (
            "jvm: {additionalOptions: [null]}",
            "spec.jvm.additionalOptions[0]",
        ),
    ] {
        let spec = format!("replicas: 3, {spec}");
        assert_eq!(found("ZooKeeperEnsemble", &spec), fields, "{spec}");
    }
    let election = "ensembleRef: {name: main}, path: /a, dialect: {type: Kazoo, custom: null}";
    for more in [
        "connection: null",
        "maxCandidates: null",
        "identity: {decoder: Text, pointers: null}",
    ] {
        let spec = format!("{election}, {more}");
        assert_eq!(found("LeaderElection", &spec), "", "{spec}");
    }
}

#[test]
fn the_items_of_a_list_are_checked_each() {
    let linter = Linter::new().unwrap();
    let item = |replicas: u8| {
        format!(
            "- apiVersion: zookeeper.bellwether.dev/v1alpha1\n  kind: ZooKeeperEnsemble\n  metadata: {{name: a{replicas}}}\n  spec: {{replicas: {replicas}}}\n"
        )
    };
    let text = format!("apiVersion: v1\nkind: List\nitems:\n{}{}", item(3), item(4));
    let report = linter.check(&text, &Existing::default());
    assert_eq!(report.checked.len(), 2);
    assert_eq!(report.findings.len(), 1);
    assert_eq!(report.findings[0].object, "ZooKeeperEnsemble/a4");
}

/// The examples that people copy.
#[test]
fn the_manifests_of_the_documentation_are_good() {
    let linter = Linter::new().unwrap();
    let mut checked = 0;
    for text in bellwether_examples() {
        let report = linter.check(&text, &Existing::default());
        assert!(report.findings.is_empty(), "{text}\n{:#?}", report.findings);
        checked += report.checked.len();
    }
    assert!(checked >= 2, "{checked}");
}

/// The complete manifests among the YAML in the documentation.
fn bellwether_examples() -> Vec<String> {
    let mut examples = Vec::new();
    for file in [
        "../README.md",
        "../docs/elections.md",
        "../docs/runbook.md",
        "../docs/cli.md",
    ] {
        let text = fs::read_to_string(here(file)).unwrap_or_default();
        let blocks = text.split("```yaml\n").skip(1);
        let blocks = blocks.filter_map(|block| Some(block.split_once("```")?.0.to_owned()));
        examples.extend(blocks.filter(|block| block.contains("\nkind: ")));
    }
    examples
}

#[test]
fn a_key_that_no_server_reads_is_a_warning() {
    let linter = Linter::new().unwrap();
    let text = "apiVersion: zookeeper.bellwether.dev/v1alpha1\nkind: ZooKeeperEnsemble\n\
                metadata: {name: main}\nspec:\n  replicas: 3\n  config: {additional: {requestThrottleLimit: \"5\"}}\n";
    let report = linter.check(text, &Existing::default());
    assert_eq!(report.findings.len(), 1);
    assert_eq!(report.findings[0].severity, Severity::Warning);
    assert!(
        report.findings[0]
            .message
            .contains("request_throttle_max_requests")
    );
}

#[test]
fn a_workload_that_is_rolled_out_leaves_the_deletion_of_its_pods_to_others() {
    let linter = Linter::new().unwrap();
    let found = |namespace: &str, kind: &str, strategy: &str| {
        let text = format!(
            "apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: web{namespace}}}\nspec: {{{strategy}}}\n---\n\
             apiVersion: zookeeper.bellwether.dev/v1alpha1\nkind: LeaderElection\nmetadata: {{name: a}}\nspec:\n\
             \x20 ensembleRef: {{name: main}}\n  path: /a\n  dialect: {{type: Kazoo}}\n\
             \x20 podBinding: {{selector: {{matchLabels: {{app: web}}}}}}\n\
             \x20 projections: {{rollout: {{workload: {{kind: StatefulSet, name: web}}}}}}\n"
        );
        let report = linter.check(&text, &Existing::default());
        let fields = report.findings.iter().map(|f| f.field.clone());
        fields.collect::<Vec<_>>().join(" ")
    };
    let field = "spec.projections.rollout.workload";
    assert_eq!(found("", "StatefulSet", ""), field);
    let rolling = "updateStrategy: {type: RollingUpdate}";
    assert_eq!(found("", "StatefulSet", rolling), field);
    let on_delete = "updateStrategy: {type: OnDelete}";
    assert_eq!(found("", "StatefulSet", on_delete), "");
    assert_eq!(found("", "Deployment", rolling), "");
    assert_eq!(found(", namespace: other", "StatefulSet", rolling), "");
}

#[test]
fn the_service_of_an_election_must_not_be_one_of_an_ensemble() {
    let linter = Linter::new().unwrap();
    let found = |election: &str, namespace: &str, service: &str| {
        let text = format!(
            "apiVersion: zookeeper.bellwether.dev/v1alpha1\nkind: ZooKeeperEnsemble\nmetadata: {{name: main}}\n\
             spec: {{replicas: 3}}\n---\napiVersion: zookeeper.bellwether.dev/v1alpha1\nkind: LeaderElection\n\
             metadata: {{name: {election}{namespace}}}\nspec:\n  ensembleRef: {{name: main}}\n  path: /a\n\
             \x20 dialect: {{type: Kazoo}}\n  podBinding: {{selector: {{matchLabels: {{app: a}}}}}}\n\
             \x20 projections: {{service: {{{service}ports: [{{name: a, port: 80}}]}}}}\n"
        );
        let report = linter.check(&text, &Existing::default());
        let fields = report.findings.iter().map(|f| f.field.clone());
        fields.collect::<Vec<_>>().join(" ")
    };
    let field = "spec.projections.service.name";
    assert_eq!(found("main", "", ""), field);
    assert_eq!(found("a", "", "name: main-members, "), field);
    assert_eq!(found("a", "", ""), "");
    assert_eq!(found("main", ", namespace: other", ""), "");
}

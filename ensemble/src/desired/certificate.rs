//! What cert-manager is asked for: the certificate that members present to clients.

use std::borrow::Cow;

use bellwether_api::ensemble::CERTIFICATE_SUFFIX;
use bellwether_api::ensemble::status::Reason;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{DesiredObject, ObjectKind, apply, metadata};
use crate::certificates::client_port_names;
use crate::observation::{CertificateObservation, Observation};
use crate::plan::trouble::Trouble;
use crate::validate::ValidEnsemble;

/// How long cert-manager may take for a certificate before a person is told, and a new ensemble begins without it.
const PATIENCE: SignedDuration = SignedDuration::from_mins(2);

/// The name of the Certificate, and of the Secret that cert-manager writes for it.
pub fn certificate_name(ensemble: &str) -> String {
    format!("{ensemble}-{CERTIFICATE_SUFFIX}")
}

/// The Certificate; `None` if the spec names no issuer, or the operator may not ask it.
///
/// It is for clients only. Servers take whoever has a certificate of the authority that they trust for a member
/// (`common/X509Util.java` checks no names of those who connect), and an issuer signs for others too.
pub fn certificate(ensemble: &ValidEnsemble) -> Option<DesiredObject> {
    let issuer = ensemble.tls.issuer_ref.as_ref();
    let issuer = issuer.filter(|_| ensemble.context.cert_manager)?;
    let name = certificate_name(&ensemble.name);
    let body = json!({
        "apiVersion": "cert-manager.io/v1",
        "kind": "Certificate",
        "spec": {
            "secretName": name,
            "dnsNames": client_port_names(ensemble),
            "usages": ["digital signature", "server auth"],
            // ZooKeeper reads keys in PKCS#8 only.
            "privateKey": {
                "algorithm": "ECDSA", "size": 256, "encoding": "PKCS8", "rotationPolicy": "Always",
            },
            "issuerRef": {
                "name": issuer.name,
                "kind": issuer.kind.as_deref().unwrap_or("Issuer"),
                "group": issuer.group.as_deref().unwrap_or("cert-manager.io"),
            },
        },
    });
    let metadata = metadata(ensemble, &name);
    Some(apply(ObjectKind::Certificate, name, metadata, body))
}

/// The ensemble with the Secret of its issuer, if it has one. A member without its Secret does not come up, so members get
/// it when cert-manager has written it; until then they keep what they have, also that of another source.
pub fn with_secret<'a>(
    ensemble: &'a ValidEnsemble,
    observation: &Observation,
) -> Cow<'a, ValidEnsemble> {
    if ensemble.tls.issuer_ref.is_none() {
        return Cow::Borrowed(ensemble);
    }
    let is_ready = observation.certificate.as_ref().is_some_and(|c| c.ready);
    let mounted = || {
        observation
            .stateful_set
            .as_ref()?
            .client_port_secret
            .clone()
    };
    let secret = match is_ready {
        true => Some(certificate_name(&ensemble.name)),
        false => mounted(),
    };
    Cow::Owned(ValidEnsemble {
        client_port_secret: secret,
        ..ensemble.clone()
    })
}

/// What to say while a new ensemble waits for its certificate; `None` if it waits for none, or has waited for long.
pub fn awaited(ensemble: &ValidEnsemble, observation: &Observation) -> Option<String> {
    let issuer = ensemble.tls.issuer_ref.as_ref();
    let issuer = issuer.filter(|_| ensemble.context.cert_manager)?;
    let waits = match &observation.certificate {
        None => true,
        Some(CertificateObservation { says, ready, .. }) => {
            !ready
                && says
                    .as_ref()
                    .is_none_or(|(since, _)| observation.now.duration_since(*since) < PATIENCE)
        }
    };
    waits.then(|| {
        format!(
            "Waiting for cert-manager to make the Certificate {} of the issuer {}; the servers start with it.",
            certificate_name(&ensemble.name),
            issuer.name
        )
    })
}

/// What cert-manager says of a Certificate.
pub fn observe(certificate: &Value) -> CertificateObservation {
    let conditions = certificate["status"]["conditions"].as_array();
    let of = |kind: &str| {
        let mut all = conditions.into_iter().flatten();
        all.find(|condition| condition["type"] == kind)
    };
    let since = |time: &Value| {
        time.as_str()
            .unwrap_or_default()
            .parse()
            .unwrap_or(Timestamp::MIN)
    };
    let ready = of("Ready").is_some_and(|ready| ready["status"] == "True");
    let failed = of("Issuing").filter(|issuing| issuing["reason"] == "Failed");
    let not_ready = of("Ready").filter(|_| !ready);
    let says = match failed.or(not_ready) {
        Some(condition) => {
            let message = condition["message"].as_str().unwrap_or_default();
            Some((since(&condition["lastTransitionTime"]), message.to_owned()))
        }
        None if ready => None,
        None => Some((
            since(&certificate["metadata"]["creationTimestamp"]),
            "nothing".to_owned(),
        )),
    };
    let uid = certificate["metadata"]["uid"].as_str();
    CertificateObservation {
        uid: uid.map(str::to_owned),
        ready,
        says,
    }
}

/// A certificate that cert-manager does not make.
pub fn trouble(ensemble: &ValidEnsemble, observation: &Observation) -> Option<Trouble> {
    let issuer = ensemble.tls.issuer_ref.as_ref()?;
    let (name, issuer) = (certificate_name(&ensemble.name), &issuer.name);
    let meanwhile =
        "Members present what they presented before, or a certificate of the operator's.";
    let message = if !ensemble.context.cert_manager {
        format!(
            "The operator may not ask cert-manager for the certificate of the issuer {issuer}. {meanwhile} Install its chart with \
             rbac.certManager=true, or take spec.tls.issuerRef out."
        )
    } else {
        let (since, says) = observation.certificate.as_ref()?.says.as_ref()?;
        let waits = observation.now.duration_since(*since);
        if waits < PATIENCE {
            return None;
        }
        format!(
            "cert-manager does not make the Certificate {name} of the issuer {issuer}: it says {says:?}. {meanwhile} \
             `kubectl describe certificaterequests` tells more."
        )
    };
    Some(Trouble {
        reason: Reason::CredentialsUnusable,
        message,
    })
}

#[cfg(test)]
mod tests {
    use bellwether_api::ZooKeeperEnsembleSpec;
    use bellwether_api::ensemble::{ClientsTls, IssuerReference};

    use super::*;
    use crate::observation::StatefulSetObservation;
    use crate::validate::example;

    fn of_issuer() -> ValidEnsemble {
        let mut ensemble = example(ZooKeeperEnsembleSpec {
            replicas: 3,
            ..Default::default()
        });
        ensemble.context.cert_manager = true;
        ensemble.tls.clients = Some(ClientsTls::Optional);
        ensemble.tls.issuer_ref = Some(IssuerReference {
            name: "company".to_owned(),
            kind: Some("ClusterIssuer".to_owned()),
            group: None,
        });
        ensemble
    }

    fn certificate_with(conditions: &Value) -> Value {
        let metadata = json!({ "uid": "7", "creationTimestamp": "2026-01-01T00:08:30Z" });
        json!({ "metadata": metadata, "status": { "conditions": conditions } })
    }

    fn told(ensemble: &ValidEnsemble, conditions: &Value) -> Option<String> {
        let observation = Observation {
            now: "2026-01-01T00:10:00Z".parse().unwrap(),
            certificate: Some(observe(&certificate_with(conditions))),
            ..Observation::default()
        };
        trouble(ensemble, &observation).map(|trouble| trouble.message)
    }

    #[test]
    fn it_has_the_names_of_the_client_port_and_a_key_that_zookeeper_reads() {
        let ensemble = of_issuer();
        let body = certificate(&ensemble).unwrap().body;
        assert_eq!(
            body["spec"]["dnsNames"],
            json!(client_port_names(&ensemble))
        );
        assert_eq!(body["spec"]["privateKey"]["encoding"], "PKCS8");
        let issuer =
            json!({ "name": "company", "kind": "ClusterIssuer", "group": "cert-manager.io" });
        assert_eq!(body["spec"]["issuerRef"], issuer);
        assert_eq!(body["spec"]["secretName"], "zk-zookeeper-tls");
    }

    #[test]
    fn without_the_right_nothing_is_asked_and_a_person_is_told() {
        let mut ensemble = of_issuer();
        ensemble.context.cert_manager = false;
        assert_eq!(certificate(&ensemble), None);
        let message = told(&ensemble, &json!([])).unwrap();
        assert!(message.contains("rbac.certManager=true"), "{message}");
        ensemble.tls.issuer_ref = None;
        assert_eq!(told(&ensemble, &json!([])), None);
    }

    #[test]
    fn members_get_its_secret_when_it_is_there_and_keep_what_they_have_until_then() {
        let ensemble = of_issuer();
        let secret = |ready: bool, mounted: Option<&str>| {
            let observation = Observation {
                certificate: Some(CertificateObservation {
                    ready,
                    ..Default::default()
                }),
                stateful_set: Some(StatefulSetObservation {
                    client_port_secret: mounted.map(str::to_owned),
                    ..Default::default()
                }),
                ..Observation::default()
            };
            with_secret(&ensemble, &observation)
                .client_port_secret
                .clone()
        };
        assert_eq!(secret(false, None), None);
        assert_eq!(
            secret(false, Some("own-zookeeper-tls")).unwrap(),
            "own-zookeeper-tls"
        );
        assert_eq!(
            secret(true, Some("own-zookeeper-tls")).unwrap(),
            "zk-zookeeper-tls"
        );
        // It ended, and cert-manager does not renew it: no roll takes the Secret away.
        assert_eq!(
            secret(false, Some("zk-zookeeper-tls")).unwrap(),
            "zk-zookeeper-tls"
        );
    }

    #[test]
    fn a_new_ensemble_waits_for_its_certificate_and_begins_without_it_after_a_while() {
        let kinds = |certificate: Option<Value>| {
            let observation = Observation {
                now: "2026-01-01T00:10:00Z".parse().unwrap(),
                certificate: certificate.as_ref().map(observe),
                ..Observation::default()
            };
            let plan = crate::plan::plan(&of_issuer(), &observation);
            let kinds = plan
                .objects
                .iter()
                .chain(&plan.last)
                .map(|object| object.kind);
            kinds.collect::<Vec<_>>()
        };
        let ready = |status: &str, minute: u8| {
            let condition = json!({
                "type": "Ready", "status": status,
                "lastTransitionTime": format!("2026-01-01T00:{minute:02}:00Z"),
            });
            Some(certificate_with(&json!([condition])))
        };
        assert_eq!(kinds(None), [ObjectKind::Certificate]);
        assert_eq!(kinds(ready("False", 9)), [ObjectKind::Certificate]);
        for certificate in [ready("True", 9), ready("False", 7)] {
            let kinds = kinds(certificate);
            assert!(kinds.contains(&ObjectKind::StatefulSet), "{kinds:?}");
        }
    }

    #[test]
    fn a_certificate_that_is_not_made_or_not_renewed_is_told_after_a_while() {
        let condition = |kind: &str, status: &str, reason: &str, minute: u8| {
            json!({
                "type": kind, "status": status, "reason": reason, "message": format!("{reason}."),
                "lastTransitionTime": format!("2026-01-01T00:{minute:02}:00Z"),
            })
        };
        let ready = condition("Ready", "True", "Ready", 0);
        let waits = |minute| condition("Ready", "False", "DoesNotExist", minute);
        let issuing = condition("Issuing", "True", "DoesNotExist", 0);
        let failed = condition("Issuing", "False", "Failed", 5);
        let told = |conditions: Value| told(&of_issuer(), &conditions);
        // cert-manager has not looked at it for a minute and a half.
        assert_eq!(told(json!([])), None);
        assert_eq!(told(json!([ready])), None);
        assert_eq!(told(json!([waits(9), issuing])), None);
        assert!(
            told(json!([waits(5), issuing]))
                .unwrap()
                .contains("DoesNotExist.")
        );
        // A renewal that fails, while the certificate before still is of use.
        assert!(told(json!([ready, failed])).unwrap().contains("Failed."));
    }
}

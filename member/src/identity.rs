//! Which member of which ensemble this pod is.

use std::fmt;

/// The largest server id that ZooKeeper takes with every feature switched on.
const MAX_SERVER_ID: u64 = 254;

/// One member of one ensemble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// `namespace/name` of the ensemble.
    pub ensemble: String,
    /// The server id: ordinal + 1 + offset.
    pub server_id: u64,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server {} of ensemble {}", self.server_id, self.ensemble)
    }
}

/// Derives the identity from what the pod template put into the environment.
///
/// # Errors
/// Which variable names no member, and what is expected of it.
pub fn identify(
    pod_name: Option<&str>,
    ensemble: Option<&str>,
    id_offset: Option<&str>,
) -> Result<Identity, String> {
    let pod_name = pod_name.ok_or("POD_NAME is not set")?;
    let ensemble = ensemble.ok_or("ENSEMBLE is not set")?;
    let well_formed = ensemble
        .split_once('/')
        .is_some_and(|(namespace, name)| !namespace.is_empty() && !name.is_empty());
    if !well_formed {
        return Err(format!("ENSEMBLE is {ensemble:?}, expected namespace/name"));
    }
    let ordinal: u64 = pod_name
        .rsplit_once('-')
        .filter(|(set, digits)| !set.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
        .and_then(|(_, digits)| digits.parse().ok())
        .ok_or_else(|| {
            format!("POD_NAME is {pod_name:?}, expected a StatefulSet's pod: name, dash, ordinal")
        })?;
    let offset: u64 = match id_offset {
        None | Some("") => 0,
        Some(text) => text
            .parse()
            .map_err(|_| format!("ID_OFFSET is {text:?}, expected a whole number"))?,
    };
    let server_id = ordinal
        .checked_add(1)
        .and_then(|id| id.checked_add(offset))
        .filter(|id| *id <= MAX_SERVER_ID)
        .ok_or_else(|| {
            format!(
                "{pod_name} with ID_OFFSET {offset} would have a server id over {MAX_SERVER_ID}"
            )
        })?;
    Ok(Identity {
        ensemble: ensemble.to_owned(),
        server_id,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_id_is_the_ordinal_plus_one_plus_the_offset() {
        for (pod, offset, id) in [
            ("zk-0", None, 1),
            ("my-zk-2-4", None, 5),
            ("zk-0", Some(""), 1),
            ("zk-2", Some("100"), 103),
            ("zk-observer-0", Some("100"), 101),
            ("zk-253", None, 254),
        ] {
            let identity = identify(Some(pod), Some("a/b"), offset).unwrap();
            assert_eq!(identity.server_id, id, "{pod} {offset:?}");
            assert_eq!(identity.ensemble, "a/b");
        }
    }

    #[test]
    fn an_environment_that_names_no_member_is_refused() {
        for (pod, ensemble, offset, word) in [
            (None, Some("a/b"), None, "POD_NAME"),
            (Some("zk-0"), None, None, "ENSEMBLE"),
            (Some("zk-0"), Some("b"), None, "namespace/name"),
            (Some("zk-0"), Some("/b"), None, "namespace/name"),
            (Some("zk-0"), Some("a/"), None, "namespace/name"),
            (Some("zk"), Some("a/b"), None, "POD_NAME"),
            (Some("zk-"), Some("a/b"), None, "POD_NAME"),
            (Some("-0"), Some("a/b"), None, "POD_NAME"),
            (Some("zk-+1"), Some("a/b"), None, "POD_NAME"),
            (
                Some("zk-99999999999999999999999"),
                Some("a/b"),
                None,
                "POD_NAME",
            ),
            (Some("zk-0"), Some("a/b"), Some("-1"), "ID_OFFSET"),
            (
                Some("zk-0"),
                Some("a/b"),
                Some("18446744073709551615"),
                "server id over",
            ),
            (Some("zk-254"), Some("a/b"), None, "server id over"),
        ] {
            let message = identify(pod, ensemble, offset).unwrap_err();
            assert!(message.contains(word), "{message}");
        }
    }
}

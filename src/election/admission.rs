//! Elections whose ensemble is in another namespace, which has to admit them.

use bellwether_api::election::Reason;
use jiff::Timestamp;
use tokio::sync::watch;

use super::Key;
use super::registry::{Task, replace};
use super::session::Link;

/// Whether the ensemble of an election admits it, and the task that acts on that.
pub(super) struct Admission {
    admits: watch::Sender<Option<bool>>,
    _task: Task,
}

impl Admission {
    /// Passes on what an election may know of the session to the ensemble: nothing while it is not admitted, or the ensembles
    /// were not listed yet.
    pub(super) fn new(
        ensemble: &Key,
        admits: Option<bool>,
        link: watch::Receiver<Link>,
    ) -> (Self, watch::Receiver<Link>) {
        let (admits, is_admitted) = watch::channel(admits);
        let (passed, shown) = watch::channel(Link::Starting);
        let task = tokio::spawn(pass_on(absent(ensemble), is_admitted, link, passed));
        let admission = Self {
            admits,
            _task: Task(task.abort_handle()),
        };
        (admission, shown)
    }

    /// Takes in whether the ensemble admits the election.
    pub(super) fn set(&self, admits: Option<bool>) {
        self.admits.send_if_modified(|old| replace(old, admits));
    }
}

/// The same whether there is no such ensemble or it does not admit the election: who may create elections in one namespace need
/// not be told what there is in another.
fn absent(Key { namespace, name }: &Key) -> String {
    format!(
        "There is no ensemble {name} in the namespace {namespace} that admits elections of this namespace \
         (spec.elections.namespaces)."
    )
}

/// Passes the link on while the election is admitted. Ends when a sender is gone, or nobody receives.
async fn pass_on(
    absent: String,
    mut admits: watch::Receiver<Option<bool>>,
    mut link: watch::Receiver<Link>,
    passed: watch::Sender<Link>,
) {
    loop {
        let is_admitted = *admits.borrow_and_update();
        let shown = match is_admitted {
            None => Link::Starting,
            Some(true) => link.borrow_and_update().clone(),
            Some(false) => Link::Down {
                reason: Reason::EnsembleNotFound,
                detail: absent.clone(),
                since: Timestamp::now(),
            },
        };
        if passed.send(shown).is_err() {
            return;
        }
        let changed = tokio::select! {
            changed = admits.changed() => changed,
            changed = link.changed(), if is_admitted == Some(true) => changed,
        };
        if changed.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_election_of_another_namespace_sees_what_its_ensemble_admits() {
        let ensemble = Key {
            namespace: "infra".to_owned(),
            name: "main".to_owned(),
        };
        let (session, link) = watch::channel(Link::Starting);
        let down = |detail: &str| Link::Down {
            reason: Reason::Disconnected,
            detail: detail.to_owned(),
            since: Timestamp::UNIX_EPOCH,
        };
        let (admission, mut shown) = Admission::new(&ensemble, None, link);
        let mut next = async || {
            shown.changed().await.unwrap();
            match shown.borrow_and_update().clone() {
                Link::Down { reason, detail, .. } => (Some(reason), detail),
                _ => (None, String::new()),
            }
        };
        assert_eq!(next().await.0, None);
        admission.set(Some(false));
        let (reason, detail) = next().await;
        assert_eq!(reason, Some(Reason::EnsembleNotFound));
        assert!(
            detail.contains("ensemble main in the namespace infra"),
            "{detail}"
        );
        // What becomes of the session meanwhile is not told.
        session.send_replace(down("first"));
        admission.set(Some(true));
        assert_eq!(
            next().await,
            (Some(Reason::Disconnected), "first".to_owned())
        );
        session.send_replace(down("second"));
        assert_eq!(next().await.1, "second");
        admission.set(Some(false));
        assert_eq!(next().await.0, Some(Reason::EnsembleNotFound));
    }
}

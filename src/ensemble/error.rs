//! What can go wrong in a reconcile, and what follows from it.

use std::borrow::Cow;

use kube::core::Status;
use tracing::Span;

use crate::backoff::Retry;

/// An error of the ensemble controller.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Reading from the API server failed.
    #[error("cannot read {what}: {source}")]
    Read {
        /// What was to be read.
        what: &'static str,
        /// Why it failed.
        source: Box<kube::Error>,
    },
    /// Writing to the API server failed.
    #[error("cannot write {what}: {source}")]
    Write {
        /// What was to be written.
        what: String,
        /// Why it failed.
        source: Box<kube::Error>,
    },
    /// A member did not say that the list is another one. It may be all the same: the next pass reads what it is.
    #[error("{pod} was asked for another server list: {why}")]
    Reconfiguration {
        /// The pod that was asked.
        pod: String,
        /// What it answered, or that it did not.
        why: String,
    },
    /// The members' certificate could not be made.
    #[error("cannot make the members' certificate: {0:#}")]
    Certificate(anyhow::Error),
    /// An object that the ensemble needs exists and is not the ensemble's.
    #[error(
        "{what} exists and does not belong to this ensemble; delete it, or give the ensemble \
         another name"
    )]
    Foreign {
        /// The object.
        what: String,
    },
    /// A Certificate is wanted where nobody makes any.
    #[error(
        "the cluster has no Certificates: install cert-manager, or take spec.tls.issuerRef out"
    )]
    WithoutCertManager,
    /// This process lost the operator's lease in the middle.
    #[error("this replica of the operator does not hold the lease any more")]
    LeaseLost,
}

/// What follows from an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disposition {
    /// When to try again.
    pub retry: Retry,
    /// Whether to warn a person.
    pub warn: bool,
}

impl Error {
    /// A failed read.
    pub(crate) fn read(what: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Read {
            what,
            source: Box::new(source),
        }
    }

    /// A failed write.
    pub(crate) fn write(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |source| Self::Write {
            what,
            source: Box::new(source),
        }
    }

    /// Shows a span as failed, by a word or the API server's number: the whole error may quote objects.
    pub(crate) fn show(&self, span: &Span) {
        let word: Cow<'_, str> = match self {
            Self::Read { source, .. } | Self::Write { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => status.code.to_string().into(),
                _ => "unreachable".into(),
            },
            Self::Reconfiguration { .. } => "reconfiguration".into(),
            Self::Certificate(_) => "certificate".into(),
            Self::Foreign { .. } => "foreign".into(),
            Self::WithoutCertManager => "404".into(),
            Self::LeaseLost => "lease_lost".into(),
        };
        span.record("error.type", word.as_ref());
        // Errors that cause no warning, such as write conflicts, are expected: the span does not show them as
        // errors.
        if self.disposition().warn {
            span.record("otel.status_code", "error");
        }
    }

    /// The one table from error to consequence.
    pub(crate) fn disposition(&self) -> Disposition {
        let code = match self {
            Self::Read { source, .. } | Self::Write { source, .. } => match source.as_ref() {
                // The ensemble is about to be deleted with it.
                kube::Error::Api(status) if is_namespace_terminating(status) => {
                    return Disposition {
                        retry: Retry::Slow,
                        warn: false,
                    };
                }
                kube::Error::Api(status) => status.code,
                _ => 0,
            },
            Self::Reconfiguration { .. } => {
                return Disposition {
                    retry: Retry::Growing,
                    warn: true,
                };
            }
            Self::Certificate(_) => 0,
            Self::Foreign { .. } | Self::WithoutCertManager => {
                return Disposition {
                    retry: Retry::Slow,
                    warn: true,
                };
            }
            // A process that was stopped for some seconds may renew its lease after all; one that lost it
            // ends.
            Self::LeaseLost => {
                return Disposition {
                    retry: Retry::Growing,
                    warn: false,
                };
            }
        };
        match code {
            // Another client wrote in between: the next observation contains its change.
            409 => Disposition {
                retry: Retry::Soon,
                warn: false,
            },
            // A missing right, or an object that the API server refuses: a person has to act.
            403 | 422 => Disposition {
                retry: Retry::Slow,
                warn: true,
            },
            // The namespace or the object was deleted.
            404 => Disposition {
                retry: Retry::Growing,
                warn: false,
            },
            _ => Disposition {
                retry: Retry::Growing,
                warn: true,
            },
        }
    }

    /// Whether this could not be read because the operator lacks the right to, or the cluster has no such kind.
    pub(crate) fn is_withheld(&self) -> bool {
        match self {
            Self::Read { source, .. } => {
                matches!(source.as_ref(), kube::Error::Api(status) if [403, 404].contains(&status.code))
            }
            Self::Write { .. }
            | Self::Reconfiguration { .. }
            | Self::Certificate(_)
            | Self::Foreign { .. }
            | Self::WithoutCertManager
            | Self::LeaseLost => false,
        }
    }

    /// Whether the error is only a conflict with another client's write.
    pub(crate) fn is_conflict(&self) -> bool {
        self.disposition().retry == Retry::Soon
    }
}

/// Whether the API server refuses new objects since their namespace is being deleted.
fn is_namespace_terminating(status: &Status) -> bool {
    let details = status.details.iter();
    details
        .flat_map(|details| &details.causes)
        .any(|cause| cause.reason == "NamespaceTerminating")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// As the API server says it.
    #[test]
    fn a_namespace_that_goes_is_nothing_to_warn_of() {
        let status = json!({
            "status": "Failure", "reason": "Forbidden", "code": 403,
            "message": "configmaps \"x\" is forbidden: unable to create new content in namespace a because it is being terminated",
            "details": { "name": "x", "kind": "configmaps", "causes": [{
                "reason": "NamespaceTerminating",
                "message": "namespace a is being terminated",
                "field": "metadata.namespace",
            }] },
        });
        let status = serde_json::from_value(status).unwrap();
        let error = Error::write("x")(kube::Error::Api(Box::new(status)));
        assert!(!error.disposition().warn);
    }

    fn api(code: u16) -> Error {
        let status = kube::core::Status {
            code,
            ..Default::default()
        };
        Error::write("x")(kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn each_error_has_its_consequence() {
        assert!(api(409).is_conflict());
        assert_eq!(
            api(403).disposition(),
            Disposition {
                retry: Retry::Slow,
                warn: true
            }
        );
        assert_eq!(
            api(422).disposition(),
            Disposition {
                retry: Retry::Slow,
                warn: true
            }
        );
        assert_eq!(
            api(404).disposition(),
            Disposition {
                retry: Retry::Growing,
                warn: false
            }
        );
        assert_eq!(
            api(500).disposition(),
            Disposition {
                retry: Retry::Growing,
                warn: true
            }
        );
        assert_eq!(
            Error::LeaseLost.disposition(),
            Disposition {
                retry: Retry::Growing,
                warn: false
            }
        );
    }
}

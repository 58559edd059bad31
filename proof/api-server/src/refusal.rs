//! Requests that are not carried out, in the API server's words.

use kube::core::Status;
use kube::core::response::{StatusCause, StatusDetails, StatusSummary};

use super::kind::Kind;

/// Why a request was not carried out.
pub type Refusal = Box<Status>;

/// One thing that is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flaw {
    /// The field.
    pub(crate) field: String,
    /// The reason of the cause, such as `FieldValueForbidden`.
    pub(crate) reason: &'static str,
    /// The words behind the field.
    pub(crate) message: String,
}

impl Flaw {
    /// A value that may not be so.
    pub(crate) fn invalid(field: &str, message: impl Into<String>) -> Self {
        Self {
            field: field.to_owned(),
            reason: "FieldValueInvalid",
            message: message.into(),
        }
    }

    /// A field that may not be set or changed.
    pub(crate) fn forbidden(field: &str, message: &str) -> Self {
        Self {
            field: field.to_owned(),
            reason: "FieldValueForbidden",
            message: format!("Forbidden: {message}"),
        }
    }
}

fn failure(code: u16, reason: &str, message: String) -> Status {
    Status {
        status: Some(StatusSummary::Failure),
        code,
        message,
        metadata: None,
        reason: reason.to_owned(),
        details: None,
    }
}

fn details(kind: Kind, name: &str) -> StatusDetails {
    let resource = kind.resource();
    StatusDetails {
        name: name.to_owned(),
        group: resource.group.to_owned(),
        kind: resource.plural.to_owned(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    }
}

fn about(kind: Kind, name: &str, code: u16, reason: &str, message: String) -> Refusal {
    let mut status = failure(code, reason, message);
    status.details = Some(details(kind, name));
    Box::new(status)
}

/// No object has this name.
pub(crate) fn not_found(kind: Kind, name: &str) -> Refusal {
    let message = format!("{} {name:?} not found", kind.resource().qualified());
    about(kind, name, 404, "NotFound", message)
}

/// An object has this name already.
pub(crate) fn already_exists(kind: Kind, name: &str) -> Refusal {
    let message = format!("{} {name:?} already exists", kind.resource().qualified());
    about(kind, name, 409, "AlreadyExists", message)
}

/// The object is not as the request takes it to be.
pub(crate) fn conflict(kind: Kind, name: &str, why: &str) -> Refusal {
    let what = kind.resource().qualified();
    let message = format!("Operation cannot be fulfilled on {what} {name:?}: {why}");
    about(kind, name, 409, "Conflict", message)
}

/// The resource version of the request is not the object's.
pub(crate) fn outdated(kind: Kind, name: &str) -> Refusal {
    let why = "the object has been modified; please apply your changes to the latest version and try again";
    conflict(kind, name, why)
}

/// Admission refuses it.
pub(crate) fn forbidden(kind: Kind, name: &str, why: &str) -> Refusal {
    let what = kind.resource().qualified();
    let message = format!("{what} {name:?} is forbidden: {why}");
    about(kind, name, 403, "Forbidden", message)
}

/// A webhook refuses it.
pub(crate) fn denied(webhook: &str, why: &str) -> Refusal {
    let message = format!("admission webhook {webhook:?} denied the request: {why}");
    Box::new(failure(403, "Forbidden", message))
}

/// A webhook cannot be asked, and without it nothing is admitted.
pub(crate) fn webhook_failed(webhook: &str, why: &str) -> Refusal {
    let message = format!("Internal error occurred: failed calling webhook {webhook:?}: {why}");
    Box::new(failure(500, "InternalError", message))
}

/// The object is not valid.
pub(crate) fn invalid(kind: Kind, name: &str, flaws: &[Flaw]) -> Refusal {
    let said: Vec<String> = flaws
        .iter()
        .map(|flaw| format!("{}: {}", flaw.field, flaw.message))
        .collect();
    let said = match said.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    let what = kind.resource().qualified_kind();
    let message = format!("{what} {name:?} is invalid: {said}");
    let mut refusal = about(kind, name, 422, "Invalid", message);
    if let Some(details) = &mut refusal.details {
        details.kind = kind.resource().name.to_owned();
        details.causes = flaws
            .iter()
            .map(|flaw| StatusCause {
                reason: flaw.reason.to_owned(),
                message: flaw.message.clone(),
                field: flaw.field.clone(),
            })
            .collect();
    }
    refusal
}

/// Other managers own fields that an apply without force would change.
pub(crate) fn apply_conflict(conflicts: &[(String, String)]) -> Refusal {
    let causes: Vec<StatusCause> = conflicts
        .iter()
        .map(|(manager, field)| StatusCause {
            reason: "FieldManagerConflict".to_owned(),
            message: format!("conflict with {manager}"),
            field: field.clone(),
        })
        .collect();
    let count = causes.len();
    let plural = if count == 1 { "" } else { "s" };
    let said: Vec<String> = causes
        .iter()
        .map(|cause| format!("{}: {}", cause.message, cause.field))
        .collect();
    let said = said.join("\n- ");
    let said = if count == 1 {
        format!(" {said}")
    } else {
        format!("\n- {said}")
    };
    let message = format!("Apply failed with {count} conflict{plural}:{said}");
    let mut status = failure(409, "Conflict", message);
    status.details = Some(StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes,
        retry_after_seconds: 0,
    });
    Box::new(status)
}

/// The request makes no sense.
pub(crate) fn bad_request(message: impl Into<String>) -> Refusal {
    Box::new(failure(400, "BadRequest", message.into()))
}

/// The path leads nowhere.
pub(crate) fn no_such_path() -> Refusal {
    let message = "the server could not find the requested resource";
    Box::new(failure(404, "NotFound", message.to_owned()))
}

/// The API server no longer keeps the revision that the request continues from.
pub(crate) fn expired(message: String) -> Refusal {
    Box::new(failure(410, "Expired", message))
}

/// The cache has not come as far as the request asks for.
pub(crate) fn too_large_version(asked: u64, current: u64) -> Refusal {
    let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
    let mut status = failure(504, "Timeout", message);
    status.details = Some(StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: vec![StatusCause {
            reason: "ResourceVersionTooLarge".to_owned(),
            message: "Too large resource version".to_owned(),
            field: String::new(),
        }],
        retry_after_seconds: 1,
    });
    Box::new(status)
}

/// Too many requests at once.
pub(crate) fn too_many_requests(retry_after_seconds: u32) -> Refusal {
    let message = "too many requests, please try again later.";
    let mut status = failure(429, "TooManyRequests", message.to_owned());
    status.details = Some(StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds,
    });
    Box::new(status)
}

/// The server failed.
pub(crate) fn internal_error() -> Refusal {
    let message = "Internal error occurred: etcdserver: request timed out";
    Box::new(failure(500, "InternalError", message.to_owned()))
}

/// The server is going or not there yet.
pub(crate) fn unavailable() -> Refusal {
    let message = "the server is currently unable to handle the request";
    Box::new(failure(503, "ServiceUnavailable", message.to_owned()))
}

/// A disruption budget does not allow it now.
pub(crate) fn budget_exceeded(budget: &str) -> Refusal {
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    let mut status = failure(429, "TooManyRequests", message.to_owned());
    status.details = Some(StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: vec![StatusCause {
            reason: "DisruptionBudget".to_owned(),
            message: format!("The disruption budget {budget} does not allow one more disruption"),
            field: String::new(),
        }],
        retry_after_seconds: 0,
    });
    Box::new(status)
}

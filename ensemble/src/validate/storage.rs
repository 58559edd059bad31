//! The members' volumes.

use bellwether_api::ensemble::{DEFAULT_PRE_ALLOC_SIZE, Storage};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::names::{self, is_dns_subdomain};
use super::{Problems, size_or_default};
use crate::quantity;

/// Checks sizes and classes. `log_file` is the size of a new file of the transaction log in KiB.
pub(super) fn check(storage: &Storage, log_file: Option<i32>, problems: &mut Problems) {
    let log = storage.transaction_log.as_ref();
    let log_file = log_file.unwrap_or(DEFAULT_PRE_ALLOC_SIZE);
    volume(
        "spec.storage",
        storage.size.as_ref(),
        storage.storage_class_name.as_deref(),
        log.is_none().then_some(log_file),
        problems,
    );
    if let Some(log) = log {
        volume(
            "spec.storage.transactionLog",
            log.size.as_ref(),
            log.storage_class_name.as_deref(),
            Some(log_file),
            problems,
        );
    }
}

/// Checks one volume; `log_file` is given for the one that the log is on.
fn volume(
    field: &str,
    size: Option<&Quantity>,
    class: Option<&str>,
    log_file: Option<i32>,
    problems: &mut Problems,
) {
    let size = size_or_default(size);
    let field_of_size = format!("{field}.size");
    match quantity::bytes(&size) {
        None | Some(0) => problems.add(field_of_size, "use a size such as 20Gi"),
        Some(bytes) => {
            let least = log_file.and_then(|kib| u64::try_from(kib).ok());
            if let Some(kib) = least.filter(|kib| bytes < kib << 10) {
                problems.add(
                    field_of_size,
                    format!(
                        "{}: one file of the transaction log takes {kib}Ki (config.preAllocSize) and does \
                         not fit; use a larger volume, or a smaller preAllocSize",
                        size.0
                    ),
                );
            }
        }
    }
    if let Some(class) = class.filter(|class| !is_dns_subdomain(class)) {
        let problem = format!(
            "{class:?} can be the name of no StorageClass: {}",
            names::NO_NAME
        );
        problems.add(format!("{field}.storageClassName"), problem);
    }
}

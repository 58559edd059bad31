//! The hash of what a pod template depends on.

use bellwether_api::ensemble::{Authentication, Tls};
use serde_json::json;

use crate::client_tls::ClientTls;
use crate::desired::claims::ClaimSizes;
use crate::desired::short_hash;
use crate::encryption::Encryption;
use crate::observation::Revision;
use crate::server_tls::ServerTls;
use crate::stage::Stage as _;
use crate::validate::{LogVolume, ValidEnsemble};

/// The hash of everything that the user asks for and that the pod template depends on. It does not depend on
/// the operator's version: a new operator must not restart a healthy ensemble.
///
/// `sizes` are those in the claim templates. They stay when the user asks for more, so growth restarts
/// nothing.
///
/// The pattern names every field, so a new field does not compile until it is hashed or listed among those that
/// the template does not depend on.
pub fn inputs_hash(ensemble: &ValidEnsemble, revision: &Revision, sizes: ClaimSizes<'_>) -> String {
    let ValidEnsemble {
        id_offset,
        image,
        image_pull_policy,
        image_pull_secrets,
        storage_class,
        transaction_log,
        reclaim_policy,
        settings,
        heap_mib,
        jvm_options,
        pod,
        metrics,
        authentication,
        client_port_secret,
        restart_at,
        tls:
            Tls {
                // The revision has the states on the way to them.
                servers: _,
                clients: _,
                // `client_port_secret` has what follows from them.
                client_port_secret_name: _,
                issuer_ref: _,
            },
        // Fixed for the life of an ensemble.
        name: _,
        namespace: _,
        uid: _,
        // The revision has it.
        membership_change: _,
        // Numbers of pods, which a StatefulSet changes without its template.
        size: _,
        observers: _,
        // The image has them.
        version: _,
        release: _,
        // `sizes` has those that the claim templates were created with.
        storage_size: _,
        // The NetworkPolicy has it.
        network: _,
        // What the operator does, not what it renders.
        generation: _,
        paused: _,
        replace_member: _,
        replace_after: _,
        accept_data_loss: _,
        replace_authority: _,
        // The operator's own part: it differs between versions of the operator.
        context: _,
    } = ensemble;
    let Revision {
        // The name is a hash of files that also depend on the operator's version.
        name: _,
        voters,
        version,
        initialize,
        tls,
    } = revision;
    // A list that changes at run time is for newcomers: it restarts nobody.
    let list = match version {
        None => json!(voters.to_string()),
        Some(_) => json!("at run time"),
    };
    let ClaimSizes { data, log } = sizes;
    let mut inputs = vec![
        list,
        json!(initialize.map(|id| id.0)),
        json!(image),
        json!(image_pull_policy),
        json!(image_pull_secrets),
        json!(settings),
        json!(heap_mib),
        json!(jvm_options),
        json!(pod),
        json!(restart_at),
        json!(id_offset),
        json!(data),
        json!(storage_class),
        json!(reclaim_policy),
    ];
    // Unused features are not hashed, so the hash equals that of operator versions without them.
    if let Some(LogVolume { size: _, class }) = transaction_log {
        inputs.push(json!([log, class]));
    }
    if *metrics {
        inputs.push(json!("metrics"));
    }
    let Encryption { servers, clients } = *tls;
    if servers != ServerTls::Disabled {
        inputs.push(json!(["server-tls", servers.as_str()]));
    }
    if clients != ClientTls::Disabled {
        inputs.push(json!(["client-tls", clients.as_str()]));
    }
    // The template has these only where clients may connect over TLS.
    if clients.takes_tls() && *authentication != Authentication::default() {
        inputs.push(json!(["authentication", authentication]));
    }
    if let Some(secret) = client_port_secret.as_ref().filter(|_| clients.takes_tls()) {
        inputs.push(json!(["client-port", secret]));
    }
    short_hash(&inputs)
}

#[cfg(test)]
mod tests;

//! How clients prove who they are, and members to them.

use bellwether_api::ensemble::{
    Authentication, CERTIFICATE_SUFFIX, ClientCertificates, ClientsTls, NO_CERTIFICATE,
    NO_CLIENT_PORT, NO_SUBJECT, NO_USERS, NOBODY, TWO_SOURCES, Tls, USERS_SUFFIX, Users,
    WITHOUT_TLS,
};

use super::Problems;
use super::names::{NO_NAME, is_dns_subdomain};

/// The longest subject of a super user.
const LONGEST_SUBJECT: usize = 512;

/// Checks where the certificate for clients comes from, as the CRD does.
pub(super) fn check_certificate(tls: &Tls, problems: &mut Problems) {
    let Tls {
        servers: _,
        clients,
        client_port_secret_name,
        issuer_ref,
    } = tls;
    let is_given = client_port_secret_name.is_some() || issuer_ref.is_some();
    if is_given && matches!(clients, None | Some(ClientsTls::Disabled)) {
        problems.add("spec.tls", NO_CLIENT_PORT);
    }
    if let Some(name) = client_port_secret_name {
        let field = "spec.tls.clientPortSecretName";
        secret(field, name, (CERTIFICATE_SUFFIX, NO_CERTIFICATE), problems);
    }
    let Some(issuer) = issuer_ref else {
        return;
    };
    if client_port_secret_name.is_some() {
        problems.add("spec.tls", TWO_SOURCES);
    }
    object("spec.tls.issuerRef.name", &issuer.name, problems);
    if let Some(group) = &issuer.group {
        object("spec.tls.issuerRef.group", group, problems);
    }
    if issuer.kind.as_ref().is_some_and(|kind| !is_kind(kind)) {
        problems.add(
            "spec.tls.issuerRef.kind",
            "a kind is a word in letters and digits, such as ClusterIssuer",
        );
    }
}

/// Checks it as the CRD does.
pub(super) fn check(authentication: &Authentication, tls: &Tls, problems: &mut Problems) {
    let Authentication {
        required: _,
        users,
        certificates,
    } = authentication;
    let field = "spec.authentication";
    if users.is_none() && certificates.is_none() {
        problems.add(field, NOBODY);
    }
    if matches!(tls.clients, None | Some(ClientsTls::Disabled)) {
        problems.add(field, WITHOUT_TLS);
    }
    if let Some(Users {
        secret_name,
        super_user,
    }) = users
    {
        let name = format!("{field}.users.secretName");
        secret(&name, secret_name, (USERS_SUFFIX, NO_USERS), problems);
        if let Some(user) = super_user.as_ref().filter(|user| !is_data_key(user)) {
            problems.add(
                format!("{field}.users.superUser"),
                format!(
                    "{user:?} is no key of a Secret: use letters, digits, '-', '_' and '.', at most 253"
                ),
            );
        }
    }
    if let Some(ClientCertificates {
        config_map_name,
        super_user,
    }) = certificates
    {
        let name = format!("{field}.certificates.configMapName");
        object(&name, config_map_name, problems);
        if super_user
            .as_ref()
            .is_some_and(|subject| !is_subject(subject))
        {
            problems.add(format!("{field}.certificates.superUser"), NO_SUBJECT);
        }
    }
}

/// A Secret whose name ends with this, or what is wrong with it.
fn secret(field: &str, name: &str, (suffix, why): (&str, &str), problems: &mut Problems) {
    object(field, name, problems);
    if !name.ends_with(suffix) {
        problems.add(field, why);
    }
}

fn object(field: &str, name: &str, problems: &mut Problems) {
    if !is_dns_subdomain(name) {
        problems.add(field, format!("{name:?}: {NO_NAME}"));
    }
}

/// Whether this may be a kind of Kubernetes.
fn is_kind(text: &str) -> bool {
    let letters_and_digits = text.bytes().all(|b| b.is_ascii_alphanumeric());
    (1..=63).contains(&text.len()) && letters_and_digits
}

/// Whether a Secret may have this key (`IsConfigMapKey` of Kubernetes).
fn is_data_key(name: &str) -> bool {
    let of_a_key = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=253).contains(&name.len()) && name.chars().all(of_a_key)
}

/// Whether this may be the subject of a certificate.
fn is_subject(text: &str) -> bool {
    let attribute = text.split_once('=').filter(|(_, value)| !value.is_empty());
    let named = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '.')
    };
    text.len() <= LONGEST_SUBJECT
        && !text.chars().any(char::is_control)
        && attribute.is_some_and(|(name, _)| named(name))
}

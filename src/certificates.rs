//! The operator's own authorities: two for each ensemble, all of them from one root key.
//!
//! The root key is in a Secret beside the operator's lease. The key of an authority follows from it and the
//! authority's name, so the operator stores no other key, and reads no Secret in the namespaces of ensembles.

mod authority;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use async_trait::async_trait;
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use bellwether_ensemble::certificates::{AuthorityName, Issued, Party};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, Client};
use rustls::ClientConfig;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use authority::Authority;

/// Signs the certificates of members. The operator and the simulation each implement it.
#[async_trait]
pub trait Issuer: Send + Sync {
    /// The id of the root key that all authorities follow from.
    ///
    /// # Errors
    /// When the root key cannot be had.
    async fn root(&self) -> Result<String>;

    /// A certificate for the members of an ensemble, signed by its authority for this party, with these names, from now on
    /// for so long.
    ///
    /// # Errors
    /// When the authority's key cannot be had.
    async fn issue(
        &self,
        authority: &AuthorityName,
        party: Party,
        names: Vec<String>,
        now: Timestamp,
        valid: SignedDuration,
    ) -> Result<Issued>;
}

/// The length of the root key, in bytes.
const LENGTH: usize = 32;
/// The key of the Secret that holds it.
const KEY: &str = "root.key";
/// How long the operator presents the same certificate to members. It is valid for much longer.
const PRESENTED: Duration = Duration::from_secs(24 * 60 * 60);

/// The root key.
struct Root {
    key: [u8; LENGTH],
    /// Its id, which each look at an ensemble compares.
    id: String,
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Root")
    }
}

/// The authorities of all ensembles.
pub struct Authorities {
    secrets: Api<Secret>,
    /// The name of the Secret with the root key.
    name: String,
    root: OnceCell<Root>,
    /// What the operator presents to the members of each ensemble.
    clients: Mutex<HashMap<AuthorityName, (Instant, Arc<ClientConfig>)>>,
}

impl Authorities {
    /// With the root key in the Secret of this name. It is read, or made, when it is needed first.
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            secrets: Api::namespaced(client, namespace),
            name: name.to_owned(),
            root: OnceCell::new(),
            clients: Mutex::default(),
        }
    }

    async fn key(&self) -> Result<&Root> {
        self.root
            .get_or_try_init(|| self.load())
            .await
            .with_context(|| format!("the root key in the Secret {} is missing", self.name))
    }

    /// Reads the root key. If there is none, makes one; another replica may be as fast, and the first one's counts.
    async fn load(&self) -> Result<Root> {
        if let Some(secret) = self.secrets.get_opt(&self.name).await? {
            return root_of(&secret);
        }
        let mut key = [0; LENGTH];
        ensure!(
            SystemRandom::new().fill(&mut key).is_ok(),
            "the system gives no random bytes"
        );
        let mut secret = Secret {
            data: Some([(KEY.to_owned(), ByteString(key.to_vec()))].into()),
            ..Secret::default()
        };
        secret.metadata.name = Some(self.name.clone());
        match self.secrets.create(&PostParams::default(), &secret).await {
            Ok(created) => root_of(&created),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                root_of(&self.secrets.get(&self.name).await?)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn authority(
        &self,
        name: &AuthorityName,
        party: Party,
        now: Timestamp,
    ) -> Result<Authority> {
        let root = self.key().await?;
        Authority::derive(&root.key, name, party, now)
    }

    /// How to speak to the members of an ensemble: whom to trust, and what to present.
    pub(crate) async fn client(&self, name: &AuthorityName) -> Result<Arc<ClientConfig>> {
        let clients = || self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let known = clients().get(name).cloned();
        if let Some((since, config)) = known
            && since.elapsed() < PRESENTED
        {
            return Ok(config);
        }
        let now = Timestamp::now();
        let authority = self.authority(name, Party::Members, now).await?;
        let other = match name.of_other() {
            Some(other) => Some(self.authority(&other, Party::Members, now).await?),
            None => None,
        };
        let config = Arc::new(authority.client(other.as_ref())?);
        let mut clients = clients();
        // Those of ensembles that do not exist any more end here.
        clients.retain(|_, (since, _)| since.elapsed() < PRESENTED);
        clients.insert(name.clone(), (Instant::now(), config.clone()));
        Ok(config)
    }
}

/// The root key in a Secret.
fn root_of(secret: &Secret) -> Result<Root> {
    let data = secret.data.as_ref().and_then(|data| data.get(KEY));
    let Some(ByteString(bytes)) = data else {
        bail!("it has no key {KEY}; delete the Secret, and the operator makes another one");
    };
    let key = bytes.as_slice().try_into();
    let key: [u8; LENGTH] =
        key.with_context(|| format!("its key {KEY} has {} bytes, not {LENGTH}", bytes.len()))?;
    let id = authority::root_id(&key)?;
    Ok(Root { key, id })
}

#[async_trait]
impl Issuer for Authorities {
    async fn root(&self) -> Result<String> {
        Ok(self.key().await?.id.clone())
    }

    async fn issue(
        &self,
        authority: &AuthorityName,
        party: Party,
        names: Vec<String>,
        now: Timestamp,
        valid: SignedDuration,
    ) -> Result<Issued> {
        let signer = self.authority(authority, party, now).await?;
        let mut issued = signer.issue(names, now, valid)?;
        if let Some(other) = authority.of_other() {
            let other = self.authority(&other, party, now).await?;
            issued.authority.push_str(&other.certificate());
        }
        Ok(issued)
    }
}

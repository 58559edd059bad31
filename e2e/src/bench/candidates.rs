//! Candidates of many elections, three in each, and who leads by their own account.

use std::collections::VecDeque;
use std::ops::Range;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use zookeeper_client::{Acls, Client, CreateMode};

/// How many requests are under way at the same time.
const PARALLEL: usize = 64;

/// The path of an election.
pub(super) fn path(election: usize) -> String {
    format!("/bench/{election:05}")
}

/// The prefix of the candidates' names.
const PREFIX: &str = "n_";

/// Three sessions, each of which has a candidate in every election.
pub(super) struct Candidates {
    sessions: Vec<Client>,
    /// The queue of each election: the name of the node, and whose it is.
    queues: Vec<VecDeque<(String, usize)>>,
}

impl Candidates {
    pub(super) async fn connect(hosts: &str) -> Result<Self> {
        let mut sessions = Vec::new();
        for _ in 0..3 {
            sessions.push(
                Client::connect(hosts)
                    .await
                    .context("connecting a candidate")?,
            );
        }
        Ok(Self {
            sessions,
            queues: Vec::new(),
        })
    }

    /// Enters elections; the first must follow the last one that was entered.
    pub(super) async fn enter(&mut self, elections: Range<usize>) -> Result<()> {
        let sessions = &self.sessions;
        let queues = stream::iter(elections)
            .map(|election| async move {
                let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
                let parent = path(election);
                let _ = sessions[0].create("/bench", b"", &persistent).await;
                sessions[0].create(&parent, b"", &persistent).await?;
                let mut queue = VecDeque::new();
                for (owner, session) in sessions.iter().enumerate() {
                    queue.push_back((enter(session, &parent, owner).await?, owner));
                }
                anyhow::Ok(queue)
            })
            .buffered(PARALLEL)
            .try_collect::<Vec<_>>()
            .await?;
        self.queues.extend(queues);
        Ok(())
    }

    /// The leader of an election leaves, and enters again at the end. Returns the new leader's node.
    pub(super) async fn change(&mut self, election: usize) -> Result<String> {
        self.change_all([election]).await?;
        let queue = self.queues.get(election).and_then(VecDeque::front);
        Ok(queue.map(|(node, _)| node.clone()).unwrap_or_default())
    }

    /// The same in many elections, each named at most once, as fast as the servers allow.
    pub(super) async fn change_all(
        &mut self,
        elections: impl IntoIterator<Item = usize>,
    ) -> Result<()> {
        let (sessions, queues) = (&self.sessions, &self.queues);
        let changed: Vec<_> = stream::iter(elections)
            .map(|election| async move {
                let queue = queues.get(election).context("there is no such election")?;
                let (node, owner) = queue.front().context("there is no candidate")?;
                let parent = path(election);
                let session = &sessions[*owner];
                session.delete(&format!("{parent}/{node}"), None).await?;
                let again = enter(session, &parent, *owner).await?;
                anyhow::Ok((election, (again, *owner)))
            })
            .buffer_unordered(PARALLEL)
            .try_collect()
            .await?;
        for (election, again) in changed {
            let queue = &mut self.queues[election];
            queue.pop_front();
            queue.push_back(again);
        }
        Ok(())
    }

    /// Who leads each election.
    pub(super) fn leaders(&self) -> impl Iterator<Item = (usize, &str)> {
        let leaders = self.queues.iter().map(|queue| queue.front());
        leaders
            .enumerate()
            .filter_map(|(election, leader)| Some((election, leader?.0.as_str())))
    }
}

async fn enter(session: &Client, parent: &str, owner: usize) -> Result<String> {
    let ephemeral = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let data = format!("candidate-{owner}");
    let (_, sequence) = session
        .create(&format!("{parent}/{PREFIX}"), data.as_bytes(), &ephemeral)
        .await?;
    Ok(format!("{PREFIX}{sequence}"))
}

//! The state of a world of servers that change their list at run time, small enough to visit every one.
//!
//! There are two lists, the old one and the new one, and one write whose fate is followed. Sets of servers are bit masks; server 1 is
//! bit 0.

/// The most servers.
pub const MAX: usize = 5;

/// What a server's process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It does not run.
    Down,
    /// It looks for a leader.
    Looking,
    /// It follows this server.
    Follows(u8),
    /// It leads.
    Leads,
}

/// A transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// The write.
    Write,
    /// The new list.
    Change,
    /// The old list again, under another version.
    Fence,
}

/// What a server has on its volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Disk {
    /// The epoch of the leader that it followed last, as a rank among all.
    pub epoch: u8,
    /// Its log.
    pub log: [Option<Entry>; 2],
    /// Whether it knows the new list as committed.
    pub changed: bool,
    /// Whether it was started with the old list, as if its own files were not there.
    pub blind: bool,
}

impl Disk {
    /// A volume whose database is empty, and may vote.
    pub const NEW: Self = Self {
        epoch: 0,
        log: [None, None],
        changed: false,
        blind: false,
    };

    /// Whether it has the transaction.
    pub fn has(&self, entry: Entry) -> bool {
        self.log.contains(&Some(entry))
    }

    /// Appends a transaction, if it is not there.
    pub fn append(&mut self, entry: Entry) {
        if !self.has(entry)
            && let Some(free) = self.log.iter_mut().find(|slot| slot.is_none())
        {
            *free = Some(entry);
        }
    }

    /// Whether it has stored the new list and does not know it as committed.
    pub fn pending(&self) -> bool {
        self.has(Entry::Change) && !self.changed && !self.blind
    }

    /// How it compares in a vote, before the server id.
    pub fn vote(&self) -> (u8, usize) {
        (self.epoch, self.log.iter().flatten().count())
    }
}

/// A server with its volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// What it does.
    pub role: Role,
    /// What it has; `None` without a database, with which it has no vote.
    pub disk: Option<Disk>,
}

/// The world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The servers that exist.
    pub servers: [Option<Server>; MAX],
    /// The volumes of those that were removed, if volumes stay.
    pub left: [Option<Disk>; MAX],
    /// Whether the write was acknowledged.
    pub acknowledged: bool,
    /// Whether the new list was asked for. The request may arrive at any time after that, and again.
    pub asked: bool,
    /// Whether the user wants the old list again.
    pub turned: bool,
    /// Whether the operator has asked for the old list again, so that the request for the new one comes to nothing.
    pub fenced: bool,
    /// Whether the operator is about to remove those who are not wanted: all of them at once, by what it read before.
    pub removing: bool,
    /// How many more servers may be killed.
    pub faults: u8,
    /// How many more servers may be lost with their volumes.
    pub losses: u8,
    /// How often the user may still turn round.
    pub turns: u8,
    /// Whether a leader was elected that does not have the acknowledged write.
    pub lost: bool,
}

/// The bit of a server.
pub fn bit(server: usize) -> u8 {
    1 << server
}

/// The servers of a mask.
pub fn servers(mask: u8) -> impl Iterator<Item = usize> {
    (0..MAX).filter(move |s| mask & bit(*s) != 0)
}

/// Whether `some` hold a majority of `list`.
pub fn holds_majority(some: u8, list: u8) -> bool {
    (some & list).count_ones() > list.count_ones() / 2
}

impl State {
    /// The members of this list at rest, led by this one.
    pub fn at_rest(list: u8, leader: usize) -> Self {
        let mut servers = [None; MAX];
        for server in self::servers(list) {
            let follows = u8::try_from(leader).map_or(Role::Looking, Role::Follows);
            servers[server] = Some(Server {
                role: if server == leader {
                    Role::Leads
                } else {
                    follows
                },
                disk: Some(Disk::NEW),
            });
        }
        Self {
            servers,
            left: [None; MAX],
            acknowledged: false,
            asked: false,
            turned: false,
            fenced: false,
            removing: false,
            faults: 0,
            losses: 0,
            turns: 0,
            lost: false,
        }
    }

    /// A server's role; [`Role::Down`] also of one that does not exist.
    pub fn role(&self, server: usize) -> Role {
        self.servers[server].map_or(Role::Down, |s| s.role)
    }

    /// A server's volume.
    pub fn disk(&self, server: usize) -> Option<&Disk> {
        self.servers[server].as_ref()?.disk.as_ref()
    }

    /// Those that lead.
    pub fn leaders(&self) -> impl Iterator<Item = usize> + '_ {
        (0..MAX).filter(|s| self.role(*s) == Role::Leads)
    }

    /// A leader with those who follow it.
    pub fn following(&self, leader: usize) -> u8 {
        let Some(own) = self
            .disk(leader)
            .filter(|_| self.role(leader) == Role::Leads)
        else {
            return 0;
        };
        let follows = |s: &usize| {
            let same = self.disk(*s).is_some_and(|disk| disk.epoch == own.epoch);
            same && self.role(*s) == u8::try_from(leader).map_or(Role::Down, Role::Follows)
        };
        (0..MAX)
            .filter(follows)
            .fold(bit(leader), |all, s| all | bit(s))
    }

    /// Changes a server's role.
    pub fn set_role(&mut self, server: usize, role: Role) {
        if let Some(server) = &mut self.servers[server] {
            server.role = role;
        }
    }

    /// Changes a server's volume, if it has a database.
    pub fn on_disk(&mut self, server: usize, change: impl FnOnce(&mut Disk)) {
        if let Some(disk) = self.servers[server].as_mut().and_then(|s| s.disk.as_mut()) {
            change(disk);
        }
    }

    /// Writes epochs as ranks, so that states that differ only in how many elections there were are the same.
    pub fn ranked(mut self) -> Self {
        let disks = |state: &mut Self, act: &mut dyn FnMut(&mut Disk)| {
            let servers = state.servers.iter_mut().flatten();
            let disks = servers.filter_map(|server| server.disk.as_mut());
            disks.chain(state.left.iter_mut().flatten()).for_each(act);
        };
        let mut epochs = Vec::new();
        disks(&mut self, &mut |disk| epochs.push(disk.epoch));
        epochs.sort_unstable();
        epochs.dedup();
        disks(&mut self, &mut |disk| {
            let rank = epochs.iter().position(|epoch| *epoch == disk.epoch);
            disk.epoch = u8::try_from(rank.unwrap_or_default()).unwrap_or(u8::MAX);
        });
        self
    }
}

//! How the authority of an ensemble's members is replaced while they run.
//!
//! First every member trusts both authorities, then every member presents a certificate of the new one, then the old one
//! is forgotten. A step begins when every member reports what the step before gave it, so two members always trust each
//! other, and the operator and each of them do.

/// Which authorities members trust, and which of them signed their certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Trust {
    /// The id of the authority that signed the certificate.
    pub signer: String,
    /// The id of another one that is trusted as well, while an authority is replaced.
    pub other: Option<Other>,
}

/// An authority that is trusted beside the one that signed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Other {
    /// It is to sign next.
    Next(String),
    /// It signed before.
    Last(String),
}

impl Other {
    /// Its id.
    pub fn id(&self) -> &str {
        match self {
            Self::Next(id) | Self::Last(id) => id,
        }
    }
}

impl Trust {
    /// One authority, which signed and is trusted.
    pub fn only(id: impl Into<String>) -> Self {
        Self {
            signer: id.into(),
            other: None,
        }
    }

    /// The next step to the authority with the id `wanted`, if there is one to take. `taken_up` tells that every member
    /// reports what it was given last.
    ///
    /// A replacement that has begun is finished before another one begins.
    pub fn next(&self, wanted: &str, taken_up: bool) -> Option<Self> {
        match &self.other {
            _ if !taken_up => None,
            None if self.signer == wanted => None,
            None => Some(Self {
                signer: self.signer.clone(),
                other: Some(Other::Next(wanted.to_owned())),
            }),
            Some(Other::Next(next)) => Some(Self {
                signer: next.clone(),
                other: Some(Other::Last(self.signer.clone())),
            }),
            Some(Other::Last(_)) => Some(Self::only(self.signer.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trusted(trust: &Trust) -> Vec<&str> {
        let other = trust.other.as_ref().map(Other::id);
        std::iter::once(trust.signer.as_str())
            .chain(other)
            .collect()
    }

    #[test]
    fn an_authority_is_trusted_before_it_signs_and_until_all_have_another_certificate() {
        let mut steps = vec![Trust::only("a")];
        while let Some(next) = steps.last().unwrap().next("b", true) {
            steps.push(next);
        }
        let told: Vec<_> = steps.iter().map(trusted).collect();
        assert_eq!(told, [vec!["a"], vec!["a", "b"], vec!["b", "a"], vec!["b"]]);
        // Members of two steps in a row trust each other's certificates.
        for pair in steps.windows(2) {
            for (one, other) in [(&pair[0], &pair[1]), (&pair[1], &pair[0])] {
                assert!(trusted(one).contains(&other.signer.as_str()), "{pair:?}");
            }
        }
    }

    #[test]
    fn no_step_is_taken_before_every_member_has_the_one_before() {
        let mut trust = Trust::only("a");
        for _ in 0..3 {
            assert_eq!(trust.next("b", false), None);
            trust = trust.next("b", true).unwrap();
        }
        assert_eq!(trust, Trust::only("b"));
    }

    #[test]
    fn a_replacement_is_finished_before_another_one_begins() {
        let begun = Trust::only("a").next("b", true).unwrap();
        let second = begun.next("c", true).unwrap();
        assert_eq!(trusted(&second), ["b", "a"]);
        let third = second.next("c", true).unwrap();
        assert_eq!(third, Trust::only("b"));
        assert_eq!(trusted(&third.next("c", true).unwrap()), ["b", "c"]);
    }
}

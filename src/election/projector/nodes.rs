//! The nodes that are cordoned.

use std::collections::BTreeSet;

use super::feed::WatchEvent;

/// The names of the nodes that are cordoned, as a watch shows them.
#[derive(Default)]
pub(super) struct CordonedNodes {
    names: BTreeSet<String>,
    /// The names that the running list has contained so far.
    listing: BTreeSet<String>,
}

impl CordonedNodes {
    /// Their names.
    pub(super) fn names(&self) -> &BTreeSet<String> {
        &self.names
    }

    /// Applies an event of the watch. Returns whether other nodes are cordoned than before.
    pub(super) fn observe(&mut self, event: WatchEvent<String>) -> bool {
        match event {
            WatchEvent::ListStarted => {
                self.listing.clear();
                false
            }
            WatchEvent::Applied(node) => {
                self.listing.insert(node.clone());
                self.names.insert(node)
            }
            WatchEvent::Deleted(node) => self.names.remove(&node),
            WatchEvent::ListFinished => {
                let listed = std::mem::take(&mut self.listing);
                std::mem::replace(&mut self.names, listed) != self.names
            }
            WatchEvent::Failed { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_once_and_a_list_forgets_what_it_lacks() {
        let mut nodes = CordonedNodes::default();
        let applied = |node: &str| WatchEvent::Applied(node.to_owned());
        assert!(!nodes.observe(WatchEvent::ListStarted));
        assert!(nodes.observe(applied("a")));
        assert!(!nodes.observe(WatchEvent::ListFinished));
        assert!(!nodes.observe(applied("a")));
        assert!(nodes.observe(applied("b")));
        // The watch broke, and `a` is in use again when it lists.
        assert!(!nodes.observe(WatchEvent::ListStarted));
        assert!(!nodes.observe(applied("b")));
        assert!(nodes.observe(WatchEvent::ListFinished));
        assert_eq!(nodes.names().iter().collect::<Vec<_>>(), ["b"]);
        assert!(nodes.observe(WatchEvent::Deleted("b".to_owned())));
        assert!(nodes.names().is_empty());
    }
}

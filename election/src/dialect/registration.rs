//! Where the leader of a queue registers itself, by the path of the queue.

use bellwether_api::election::recipe::{Registration, RegistrationPlace};

/// The path of the registration; `None` if it does not follow from the path of the queue.
pub(crate) fn registration_path(registration: &Registration, queue: &str) -> Option<String> {
    let mut places = registration.places.iter();
    places.find_map(|place| path_of_place(place, queue))
}

fn path_of_place(place: &RegistrationPlace, queue: &str) -> Option<String> {
    let Some((before, after)) = place.queue.split_once('*') else {
        let root = queue.strip_suffix(place.queue)?;
        return Some(format!("{root}{}", place.leader));
    };
    let (parent, name) = queue.strip_suffix(after)?.rsplit_once('/')?;
    let root = parent.strip_suffix(before.strip_suffix('/')?)?;
    Some(format!("{root}{}", place.leader.replace('*', name)))
}

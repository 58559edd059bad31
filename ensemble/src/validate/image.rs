//! The image and the release of ZooKeeper in it.

use bellwether_api::ensemble::{DEFAULT_VERSION, versions};

use super::{Catalogue, Problems};

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Checks the image and the version; what is returned are the image to run and the version to show.
pub(super) fn check(
    image: Option<&str>,
    version: Option<&str>,
    catalogue: &Catalogue,
    problems: &mut Problems,
) -> (String, String) {
    let of_a_line = |v: &&str| {
        let patch = v.strip_prefix("3.8.").or_else(|| v.strip_prefix("3.9."));
        patch.is_some_and(|p| p == "0" || !p.starts_with('0') && is_number(p))
    };
    let of_version = version.filter(of_a_line);
    if let (Some(v), None) = (version, of_version) {
        problems.add(
            "spec.version",
            format!("{v:?}: use a ZooKeeper release 3.8.x or 3.9.x, such as {DEFAULT_VERSION}"),
        );
    }
    // The tag of the image decides which release runs, whatever `spec.version` is.
    let of_tag = image.and_then(versions::release_of_image);
    for (field, release) in [("spec.version", of_version), ("spec.image", of_tag)] {
        let flaw = release.and_then(versions::flaw);
        if let Some(flaw) = flaw.filter(|f| f.refused) {
            problems.add(field, versions::sentence(flaw));
        }
    }
    if image.is_some_and(|i| i.is_empty() || i.contains(char::is_whitespace)) {
        problems.add(
            "spec.image",
            "an image reference is not empty and holds no white space",
        );
    }
    match (image, version) {
        (Some(image), Some(version)) => (image.to_owned(), version.to_owned()),
        (Some(image), None) => (image.to_owned(), image.to_owned()),
        (None, version) => {
            let version = version.unwrap_or(DEFAULT_VERSION);
            let Catalogue {
                repository,
                digests,
            } = catalogue;
            let mut image = format!("{repository}:{version}");
            match digests.get(version) {
                Some(digest) => image.push_str(&format!("@{digest}")),
                None if digests.is_empty() => {}
                None => problems.add("spec.version", not_listed(version, catalogue)),
            }
            (image, version.to_owned())
        }
    }
}

fn not_listed(version: &str, catalogue: &Catalogue) -> String {
    let listed: Vec<&str> = catalogue.digests.keys().map(String::as_str).collect();
    format!(
        "the operator's catalogue has no image of {version} (zookeeperImages.digests of the chart): use {}, or have it added",
        listed.join(" or ")
    )
}

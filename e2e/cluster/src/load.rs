//! Bringing images to the nodes, without a registry.

use std::{path::Path, thread};

use anyhow::{Context, Result, bail};

use super::{
    oci,
    paths::Paths,
    seed,
    state::{Layout, Running},
};
use crate::{process, progress};

/// Imports an archive into every node that does not have its images yet.
pub(crate) fn load(paths: &Paths, running: Running, layout: &Layout, archive: &Path) -> Result<()> {
    if !archive.is_file() {
        bail!(
            "{} is not a file: give an image archive (OCI or `docker save`)",
            archive.display()
        );
    }
    let wanted = oci::archived_images(archive);
    let imported: Result<Vec<bool>> = thread::scope(|scope| {
        let import = |number| {
            let wanted = &wanted;
            scope.spawn(move || import(paths, running, number, archive, wanted))
        };
        let threads: Vec<_> = (1..=layout.nodes).map(import).collect();
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(_) => bail!("importing into a node panicked"),
        });
        joined.collect()
    });
    let count = imported?.into_iter().filter(|imported| *imported).count();
    let names: Vec<&str> = wanted.iter().map(|(name, _)| name.as_str()).collect();
    progress::say(format!("{}: imported into {count} nodes", names.join(" ")));
    Ok(())
}

/// Says whether there was anything to import.
fn import(
    paths: &Paths,
    running: Running,
    number: u8,
    archive: &Path,
    wanted: &[(String, String)],
) -> Result<bool> {
    let socket = paths.containerd_socket(number);
    let present = process::output(seed::ctr(&socket).args(["images", "list"]))
        .with_context(|| format!("ask node {number} for its images"))?;
    if !wanted.is_empty() && wanted.iter().all(|image| is_listed(&present, image)) {
        return Ok(false);
    }
    // In the cluster's mount namespace: containerd mounts what it unpacks.
    let mut command = process::command("nsenter", ["--mount", "--target"]);
    command.arg(running.inner.pid().to_string()).arg("--");
    let ctr = seed::ctr(&socket);
    command.arg(ctr.get_program()).args(ctr.get_args());
    let archive = archive.canonicalize()?;
    process::run(command.args(["images", "import"]).arg(&archive))
        .with_context(|| format!("import {} into node {number}", archive.display()))?;
    Ok(true)
}

fn is_listed(list: &str, (name, digest): &(String, String)) -> bool {
    list.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some(name) && words.any(|word| word == digest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_present_with_the_same_digest_only() {
        let list = "REF TYPE DIGEST SIZE PLATFORMS LABELS\n\
                    docker.io/a/b:1 application/x sha256:11 1 MiB linux/amd64 -\n";
        let image = |name: &str, digest: &str| (name.to_owned(), digest.to_owned());
        assert!(is_listed(list, &image("docker.io/a/b:1", "sha256:11")));
        assert!(!is_listed(list, &image("docker.io/a/b:1", "sha256:22")));
        assert!(!is_listed(list, &image("docker.io/a/b:2", "sha256:11")));
    }
}

//! An image from a Dockerfile, without a Docker daemon.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};

use crate::{Paths, process, progress, requirements};

/// Builds a Dockerfile into an OCI archive in the cache. Its base must be `scratch`, or an image that
/// the machine can pull.
pub fn build_from_dockerfile(dockerfile: &Path, context: &Path, tag: &str) -> Result<PathBuf> {
    if !dockerfile.is_file() {
        bail!("there is no Dockerfile at {}", dockerfile.display());
    }
    let tag = full_name(tag);
    requirements::to_build_dockerfiles()?;
    let paths = Paths::from_environment()?;
    let directory = paths.cache.join("images");
    fs::create_dir_all(&directory)?;
    let archive = directory.join(format!("{}.tar", file_name(&tag)));
    let storage = paths
        .cache
        .join("work")
        .join(format!("buildah-{}", std::process::id()));
    let built = build(dockerfile, context, &tag, &storage, &archive);
    let removed = fs::remove_dir_all(&storage);
    built?;
    removed?;
    Ok(archive)
}

fn build(
    dockerfile: &Path,
    context: &Path,
    tag: &str,
    storage: &Path,
    archive: &Path,
) -> Result<()> {
    progress::say(format!("building {tag} ..."));
    fs::create_dir_all(storage)?;
    // Nothing stays but the archive: its own storage, plain directories, no service.
    let buildah = |subcommand: &str| {
        let mut command = process::command("buildah", ["--storage-driver", "vfs", "--root"]);
        command
            .arg(storage.join("root"))
            .arg("--runroot")
            .arg(storage.join("run"));
        command.arg(subcommand);
        command
    };
    let mut bud = buildah("bud");
    // Without a time of its own, the same content has the same digest.
    bud.args([
        "--isolation",
        "chroot",
        "--timestamp",
        "0",
        "--quiet",
        "--tag",
        tag,
        "--file",
    ]);
    process::run(bud.arg(dockerfile).arg(context))?;
    let partial = archive.with_extension("partial");
    let _ = fs::remove_file(&partial);
    let mut push = buildah("push");
    process::run(
        push.arg(tag)
            .arg(format!("oci-archive:{}:{tag}", partial.display())),
    )?;
    Ok(fs::rename(&partial, archive)?)
}

/// The name as a node knows it: what Kubernetes makes of a short one.
fn full_name(tag: &str) -> String {
    let first = tag.split('/').next().unwrap_or_default();
    let has_registry = tag.contains('/') && (first.contains(['.', ':']) || first == "localhost");
    let named = match (has_registry, tag.contains('/')) {
        (true, _) => tag.to_owned(),
        (false, true) => format!("docker.io/{tag}"),
        (false, false) => format!("docker.io/library/{tag}"),
    };
    let last = named.rsplit('/').next().unwrap_or_default();
    if last.contains(':') {
        named
    } else {
        format!("{named}:latest")
    }
}

fn file_name(tag: &str) -> String {
    tag.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || ".-_".contains(c) {
                c
            } else {
                '_'
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_completed_as_kubernetes_does() {
        let cases = [
            ("zookeeper:3.9.5", "docker.io/library/zookeeper:3.9.5"),
            (
                "bellwether/bellwether",
                "docker.io/bellwether/bellwether:latest",
            ),
            ("ghcr.io/a/b:1", "ghcr.io/a/b:1"),
            ("localhost/a:1", "localhost/a:1"),
            ("localhost:5000/a", "localhost:5000/a:latest"),
        ];
        for (short, full) in cases {
            assert_eq!(full_name(short), full);
        }
    }

    #[test]
    fn file_names_are_plain() {
        assert_eq!(file_name("docker.io/a/b:1"), "docker.io_a_b_1");
    }
}

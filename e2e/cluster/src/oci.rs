//! Images in the OCI layout, written directly: no daemon, no registry, and the same input gives the
//! same digest.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::hash;
use crate::process;

/// A layer: an uncompressed archive, because it is only ever read on this machine.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    file: PathBuf,
    digest: String,
    size: u64,
}

impl Layer {
    /// An existing archive.
    pub(crate) fn from_archive(file: &Path) -> Result<Self> {
        let size = file
            .metadata()
            .with_context(|| format!("read {}", file.display()))?
            .len();
        Ok(Self {
            file: file.to_owned(),
            digest: hash::sha256_of_file(file)?,
            size,
        })
    }

    /// The archive.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// A directory's content, with the owners that it has there.
    pub(crate) fn from_tree(tree: &Path, file: &Path) -> Result<Self> {
        let mut command = process::command(
            "tar",
            [
                "--create",
                "--sort=name",
                "--mtime=@0",
                "--numeric-owner",
                "--format=posix",
            ],
        );
        command.arg("--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime");
        command
            .arg("--file")
            .arg(file)
            .arg("--directory")
            .arg(tree)
            .arg(".");
        process::run(&mut command)?;
        Self::from_archive(file)
    }
}

/// An image: its name, its layers from the bottom up and how it runs.
#[derive(Debug)]
pub(crate) struct Image {
    /// The full name, as a node knows it.
    pub(crate) name: String,
    /// From the bottom up.
    pub(crate) layers: Vec<Layer>,
    /// The `config` object of the image specification.
    pub(crate) config: Value,
}

/// Writes an archive of several images that share layers.
pub(crate) fn write_archive(images: &[Image], work: &Path, archive: &Path) -> Result<()> {
    let layout = work.join("layout");
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    let mut manifests = Vec::new();
    for image in images {
        for layer in &image.layers {
            let blob = blobs.join(&layer.digest);
            if !blob.exists() {
                link_or_copy(&layer.file, &blob)?;
            }
        }
        let (config, manifest) = describe(image)?;
        fs::write(blobs.join(&config.0), &config.1)?;
        fs::write(blobs.join(&manifest.0), &manifest.1)?;
        manifests.push(json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": format!("sha256:{}", manifest.0),
            "size": manifest.1.len(),
            "annotations": {
                "io.containerd.image.name": image.name,
                "org.opencontainers.image.ref.name": image.name,
            },
        }));
    }
    fs::write(
        layout.join("oci-layout"),
        r#"{"imageLayoutVersion":"1.0.0"}"#,
    )?;
    let index = json!({ "schemaVersion": 2, "manifests": manifests });
    fs::write(layout.join("index.json"), serde_json::to_vec(&index)?)?;
    let mut command = process::command("tar", ["--create", "--file"]);
    command.arg(archive).arg("--directory").arg(&layout);
    process::run(command.args(["oci-layout", "index.json", "blobs"]))
}

type Blob = (String, Vec<u8>);

/// The configuration and the manifest of an image.
fn describe(image: &Image) -> Result<(Blob, Blob)> {
    let digests = image
        .layers
        .iter()
        .map(|layer| format!("sha256:{}", layer.digest));
    let config = serde_json::to_vec(&json!({
        "architecture": architecture(std::env::consts::ARCH),
        "os": "linux",
        "config": image.config,
        "rootfs": { "type": "layers", "diff_ids": digests.collect::<Vec<_>>() },
    }))?;
    let config_digest = hash::sha256(&config)?;
    let layers = image.layers.iter().map(|layer| {
        json!({
            "mediaType": "application/vnd.oci.image.layer.v1.tar",
            "digest": format!("sha256:{}", layer.digest),
            "size": layer.size,
        })
    });
    let manifest = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": format!("sha256:{config_digest}"),
            "size": config.len(),
        },
        "layers": layers.collect::<Vec<_>>(),
    }))?;
    Ok((
        (config_digest, config),
        (hash::sha256(&manifest)?, manifest),
    ))
}

/// The name that images use for a machine's architecture.
fn architecture(rust: &str) -> &str {
    match rust {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn link_or_copy(from: &Path, to: &Path) -> Result<()> {
    if fs::hard_link(from, to).is_err() {
        fs::copy(from, to).with_context(|| format!("copy {}", from.display()))?;
    }
    Ok(())
}

/// The images in an archive: full names and digests. Empty for an archive without an OCI index (what
/// `docker save` wrote before version 25), or with names that a node would complete.
pub(crate) fn archived_images(archive: &Path) -> Vec<(String, String)> {
    let mut command = process::command("tar", ["--extract", "--to-stdout", "--file"]);
    command.arg(archive).arg("index.json");
    let index = process::output(&mut command).unwrap_or_default();
    serde_json::from_str(&index)
        .map(|index: Value| images_of_index(&index))
        .unwrap_or_default()
}

fn images_of_index(index: &Value) -> Vec<(String, String)> {
    let name = |manifest: &Value| {
        let annotations = &manifest["annotations"];
        [
            "io.containerd.image.name",
            "org.opencontainers.image.ref.name",
        ]
        .iter()
        .find_map(|key| annotations[key].as_str())
        .filter(|name| name.contains('/'))
        .map(str::to_owned)
    };
    let manifests = index["manifests"].as_array().into_iter().flatten();
    manifests
        .filter_map(|manifest| Some((name(manifest)?, manifest["digest"].as_str()?.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Image {
        let layer = Layer {
            file: "/l".into(),
            digest: "aa".into(),
            size: 7,
        };
        Image {
            name: "docker.io/library/zookeeper:3.9.5".into(),
            layers: vec![layer],
            config: json!({ "Cmd": ["zkServer.sh"] }),
        }
    }

    #[test]
    fn a_manifest_names_its_configuration() {
        let (config, manifest) = describe(&image()).unwrap();
        let manifest: Value = serde_json::from_slice(&manifest.1).unwrap();
        assert_eq!(manifest["config"]["digest"], format!("sha256:{}", config.0));
        assert_eq!(manifest["config"]["size"], config.1.len());
        assert_eq!(manifest["layers"][0]["digest"], "sha256:aa");
    }

    #[test]
    fn the_same_image_has_the_same_digest() {
        let digests = [image(), image()].map(|image| describe(&image).unwrap().1.0);
        assert_eq!(digests[0], digests[1]);
    }

    #[test]
    fn names_of_an_archive() {
        let index = json!({ "manifests": [
            { "digest": "sha256:1", "annotations": { "org.opencontainers.image.ref.name": "a/b:1" } },
            { "digest": "sha256:2", "annotations": { "org.opencontainers.image.ref.name": "latest" } },
            { "digest": "sha256:3" },
        ]});
        assert_eq!(
            images_of_index(&index),
            [("a/b:1".to_owned(), "sha256:1".to_owned())]
        );
    }
}

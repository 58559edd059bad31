//! The archive of the classes that a ZooKeeper server loads, recorded as `docs/examples/class-archive` does it for users:
//! with it, Java starts a server in about half the time.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::{images::SYSTEM_PATH, paths::Paths};
use crate::{process, progress};

/// The archive in the image.
const FILE: &str = "server.jsa";

/// Where the recipe is.
pub(super) fn recipe(paths: &Paths) -> PathBuf {
    paths.repository.join("docs/examples/class-archive")
}

/// The variable with which an image tells `zkServer.sh` to use the archive, taken from the recipe.
pub(super) fn variable(paths: &Paths) -> Result<String> {
    let recipe = fs::read_to_string(recipe(paths).join("Dockerfile"))?;
    let line = recipe.lines().find_map(|line| line.strip_prefix("ENV "));
    Ok(line
        .context("the Dockerfile sets no variable")?
        .replace('"', ""))
}

/// Runs two servers of the distribution `name` in `tree`, on the image's Debian unpacked in `root`, and adds the archive to
/// the tree.
///
/// The jars get the time that they have in a layer, since Java compares it.
pub(super) fn record(paths: &Paths, root: &Path, tree: &Path, name: &str) -> Result<()> {
    let distribution = tree.join(name);
    let mut find = process::command("find", [&distribution]);
    process::run(find.args(["-exec", "touch", "--date=@0", "{}", "+"]))?;
    for directory in [name, "dev", "proc"] {
        fs::create_dir_all(root.join(directory))?;
    }
    fs::copy(recipe(paths).join("record.sh"), root.join("record.sh"))?;
    // In namespaces of its own, so that nothing stays mounted and the ports are free.
    let mut command = process::command("unshare", ["--mount", "--net", "--pid", "--fork"]);
    command.args(["--kill-child", "sh", "-euc"]);
    command.arg(format!(
        "mount --bind /dev \"$1/dev\"; mount -t proc proc \"$1/proc\"; mount --bind \"$2\" \"$1/{name}\"; \
         ip link set lo up; \
         exec chroot \"$1\" env -i PATH=/{name}/bin:{SYSTEM_PATH} /record.sh /{FILE}"
    ));
    command.arg("sh").args([root, &distribution]);
    let title = format!("recording the classes of {name}");
    progress::long_step(&title, &mut command, &paths.build_log("class-archive"))?;
    Ok(fs::rename(root.join(FILE), tree.join(FILE))?)
}

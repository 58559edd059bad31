//! The images of the test cluster, made from Debian's and Maven's packages.
//!
//! | image | what it is |
//! |---|---|
//! | `docker.io/bellwether/pause:1` | holds a pod's namespaces |
//! | `docker.io/library/zookeeper:VERSION` | Apache's jars with the official image's contract |
//! | `docker.io/bellwether/e2e-clients:dev` | kazoo, Curator and others, with the programs of the tests |
//! | `docker.io/bellwether/e2e-APPLICATION:dev` | whole applications: see [`applications`] |

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::{
    applications, class_archive,
    config::PAUSE_IMAGE,
    hash::{self, Inputs},
    jars,
    oci::{self, Image, Layer},
    paths::Paths,
    programs, seed,
};
use crate::{cargo, process, progress};

/// Changes when the way of building does.
const RECIPE: &str = "1";

/// The user of the images, as in ZooKeeper's official one.
pub(super) const USER: u32 = 1000;

/// The image with the clients of the tests.
pub(crate) const CLIENTS_IMAGE: &str = "docker.io/bellwether/e2e-clients:dev";

/// The package, and the program, of the client in Rust.
const RUST_CLIENT: &str = "bellwether-e2e-lock";

/// The recipe, and the directory in the image, of an older Curator.
const OLD_CURATOR: &str = "curator-5.3";

/// Debian's release in the images.
const RELEASE: &str = "bookworm";
/// The version of that release's Python.
const PYTHON: &str = "3.11";

pub(super) const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The built archives. Their names change with their content.
#[derive(Clone, Debug)]
pub(crate) struct Archives {
    /// `pause` and ZooKeeper, which rarely change.
    pub(crate) servers: PathBuf,
    /// Whole applications, which are large.
    pub(crate) applications: PathBuf,
    /// The clients, which change with the tests.
    pub(crate) clients: PathBuf,
}

impl Archives {
    /// All of them; those that change rarely come first.
    pub(crate) fn all(&self) -> [&Path; 3] {
        [&self.servers, &self.applications, &self.clients]
    }
}

struct Keys {
    rootfs: String,
    servers: String,
    applications: String,
    libraries: String,
    clients: String,
}

impl Keys {
    fn of(paths: &Paths) -> Result<Self> {
        let recipes = paths.recipes().join("images");
        let inputs = |name: &str, base: &str| {
            let inputs = Inputs::default()
                .value("recipe", RECIPE)
                .value("base", base);
            inputs.tree(&recipes.join(name))
        };
        let rootfs = inputs("rootfs", RELEASE)?.key()?;
        let servers = inputs("zookeeper", &rootfs)?
            .tree(&recipes.join("pause"))?
            .tree(&class_archive::recipe(paths))?
            .key()?;
        let applications = applications::key(paths, &rootfs)?;
        let libraries = inputs("clients", &rootfs)?.key()?;
        let lock_file = fs::read(paths.repository.join("Cargo.lock"))?;
        let clients = Inputs::default()
            .value("base", &libraries)
            .value("Cargo.lock", lock_file)
            .tree(&paths.clients())?
            .key()?;
        Ok(Self {
            rootfs,
            servers,
            applications,
            libraries,
            clients,
        })
    }

    fn archives(&self, paths: &Paths) -> Archives {
        Archives {
            servers: paths.cache.join(format!("servers-{}.tar", self.servers)),
            applications: paths
                .cache
                .join(format!("applications-{}.tar", self.applications)),
            clients: paths.cache.join(format!("clients-{}.tar", self.clients)),
        }
    }
}

/// Where the archives are, and whether they are there.
pub(crate) fn locate(paths: &Paths) -> Result<(Archives, bool)> {
    let archives = Keys::of(paths)?.archives(paths);
    let built = archives.all().iter().all(|archive| archive.exists());
    Ok((archives, built))
}

/// Builds what is not in the cache.
pub(crate) fn build(paths: &Paths) -> Result<Archives> {
    let keys = Keys::of(paths)?;
    let archives = keys.archives(paths);
    if archives.all().iter().all(|archive| archive.exists()) {
        return Ok(archives);
    }
    let rootfs = build_rootfs(paths, &keys.rootfs)?;
    let base = Base {
        paths,
        layer: Layer::from_archive(&rootfs)?,
    };
    if !archives.servers.exists() {
        base.build_servers(&archives.servers)?;
    }
    if !archives.applications.exists() {
        applications::build(&base, &archives.applications)?;
    }
    if !archives.clients.exists() {
        base.build_clients(&keys, &archives.clients)?;
    }
    Ok(archives)
}

/// Debian with a Java runtime: the layer below all images.
fn build_rootfs(paths: &Paths, key: &str) -> Result<PathBuf> {
    let archive = paths.cache.join(format!("rootfs-{key}.tar"));
    if archive.exists() {
        return Ok(archive);
    }
    let recipe = paths.recipes().join("images/rootfs");
    let packages = words_of(&fs::read_to_string(recipe.join("packages.txt"))?)
        .concat()
        .join(",");
    let partial = archive.with_extension("partial.tar");
    let mut command = process::command(
        "mmdebstrap",
        [
            "--variant=minbase",
            "--skip=output/dev",
            "--dpkgopt=path-exclude=/usr/share/doc/*",
        ],
    );
    command.arg(format!("--include={packages}"));
    command.arg(format!(
        "--customize-hook='{}' \"$1\"",
        recipe.join("customize.sh").display()
    ));
    command.arg(RELEASE).arg(&partial);
    let title = "building the images' Debian with Java (about 2 minutes, once)";
    progress::long_step(title, &mut command, &paths.build_log("rootfs"))?;
    fs::rename(&partial, &archive)?;
    Ok(archive)
}

/// The words of every line that is not a comment.
fn words_of(text: &str) -> Vec<Vec<&str>> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .filter(|line| !line.starts_with('#'))
        .map(|l| l.split_whitespace().collect())
        .collect()
}

/// What all images but `pause` are built on.
pub(super) struct Base<'a> {
    pub(super) paths: &'a Paths,
    /// Debian with a Java runtime.
    pub(super) layer: Layer,
}

impl Base<'_> {
    /// An empty directory to build in.
    pub(super) fn work(&self, name: &str) -> Result<PathBuf> {
        let directory = self.paths.cache.join("work").join(name);
        seed::remove(&directory)?;
        fs::create_dir_all(&directory)?;
        Ok(directory)
    }

    fn recipe(&self, name: &str) -> PathBuf {
        self.paths.recipes().join("images").join(name)
    }

    fn build_servers(&self, archive: &Path) -> Result<()> {
        let work = self.work("servers")?;
        let mut images = vec![self.pause(&work)?];
        let root = work.join("root");
        unpack(self.layer.file(), &root)?;
        let versions = fs::read_to_string(self.recipe("zookeeper/versions.txt"))?;
        for words in words_of(&versions) {
            let [version, metrics] = words[..] else {
                bail!("versions.txt: {words:?} is not VERSION and METRICS-VERSION");
            };
            images.push(self.zookeeper(version, metrics, &work, &root)?);
        }
        finish(&images, &work, archive)
    }

    fn pause(&self, work: &Path) -> Result<Image> {
        let tree = work.join("pause");
        fs::create_dir_all(&tree)?;
        let mut compile = process::command("cc", ["-static", "-O2", "-s", "-o"]);
        process::run(
            compile
                .arg(tree.join("pause"))
                .arg(self.recipe("pause/pause.c")),
        )?;
        Ok(Image {
            name: PAUSE_IMAGE.to_owned(),
            layers: vec![Layer::from_tree(&tree, &work.join("pause.tar"))?],
            config: json!({ "Entrypoint": ["/pause"], "User": "65535:65535" }),
        })
    }

    /// `root` is the image's Debian, unpacked.
    fn zookeeper(&self, version: &str, metrics: &str, work: &Path, root: &Path) -> Result<Image> {
        let recipe = self.recipe("zookeeper");
        let tree = work.join(format!("zookeeper-{version}"));
        let name = format!("apache-zookeeper-{version}-bin");
        let home = tree.join(&name);
        for directory in ["bin", "lib", "conf"] {
            fs::create_dir_all(home.join(directory))?;
        }
        jars::fetch(self.paths, version, metrics, &home.join("lib"))?;
        // Apache's own scripts are in the layer below.
        for script in ["zkServer.sh", "zkCli.sh", "zkCleanup.sh"] {
            let target = Path::new("/opt/zookeeper-scripts").join(script);
            // A link would make the script look for zkEnv.sh beside its target.
            self.copy_from_base(&target, &home.join("bin").join(script))?;
        }
        fs::copy(recipe.join("zkEnv.sh"), home.join("bin/zkEnv.sh"))?;
        fs::copy(
            recipe.join("docker-entrypoint.sh"),
            tree.join("docker-entrypoint.sh"),
        )?;
        fs::copy(recipe.join("logback.xml"), home.join("conf/logback.xml"))?;
        for directory in ["conf", "data", "datalog", "logs"] {
            let directory = tree.join(directory);
            fs::create_dir_all(&directory)?;
            chown(&directory, Some(USER), Some(USER))?;
        }
        fs::copy(recipe.join("logback.xml"), tree.join("conf/logback.xml"))?;
        class_archive::record(self.paths, root, &tree, &name)?;
        let layer = Layer::from_tree(&tree, &work.join(format!("zookeeper-{version}.tar")))?;
        Ok(Image {
            name: format!("docker.io/library/zookeeper:{version}"),
            layers: vec![self.layer.clone(), layer],
            config: json!({
                "Env": [
                    format!("PATH=/{name}/bin:{SYSTEM_PATH}"),
                    "ZOOCFGDIR=/conf",
                    "ZOO_CONF_DIR=/conf",
                    "ZOO_DATA_DIR=/data",
                    "ZOO_DATA_LOG_DIR=/datalog",
                    "ZOO_LOG_DIR=/logs",
                    class_archive::variable(self.paths)?,
                ],
                "WorkingDir": format!("/{name}"),
                "Entrypoint": ["/docker-entrypoint.sh"],
                "Cmd": ["zkServer.sh", "start-foreground"],
                "Volumes": { "/data": {}, "/datalog": {}, "/logs": {} },
                "ExposedPorts":
                    { "2181/tcp": {}, "2888/tcp": {}, "3888/tcp": {}, "8080/tcp": {} },
            }),
        })
    }

    /// Takes one file out of the lowest layer.
    fn copy_from_base(&self, file: &Path, to: &Path) -> Result<()> {
        let mut tar = process::command("tar", ["--extract", "--to-stdout", "--file"]);
        tar.arg(self.layer.file())
            .arg(format!(".{}", file.display()));
        fs::write(to, process::output(&mut tar)?)?;
        Ok(fs::set_permissions(to, fs::Permissions::from_mode(0o755))?)
    }

    /// Single files of Debian's packages, as a list in this directory names them.
    fn fetch_from_debian(&self, list: &Path, work: &Path, out: &Path) -> Result<()> {
        for words in words_of(&fs::read_to_string(list)?) {
            let [package, files @ ..] = &words[..] else {
                continue;
            };
            let archive = work.join(format!("{package}.tar"));
            let mut fetch =
                process::command("mmdebstrap", ["--variant=extract", "--skip=output/dev"]);
            fetch.arg(format!("--include={package}"));
            fetch.arg(RELEASE).arg(&archive);
            let title = format!("fetching {package}");
            progress::long_step(&title, &mut fetch, &self.paths.build_log(package))?;
            let mut tar = process::command("tar", ["--extract", "--file"]);
            tar.arg(&archive).arg("--directory").arg(work);
            process::run(tar.args(files.iter().map(|file| format!("./{file}"))))?;
            for file in files {
                let name = Path::new(file).file_name().context("a file has a name")?;
                fs::copy(work.join(file), out.join(name))?;
            }
        }
        Ok(())
    }

    /// kazoo and Curator: fetched once, not for every change of a test's program.
    fn build_client_libraries(&self, key: &str) -> Result<PathBuf> {
        let archive = self.paths.cache.join(format!("libraries-{key}.tar"));
        if archive.exists() {
            return Ok(archive);
        }
        let work = self.work("libraries")?;
        let tree = work.join("tree");
        let recipe = self.recipe("clients");
        for (name, recipe) in [
            ("lib", recipe.clone()),
            (OLD_CURATOR, recipe.join(OLD_CURATOR)),
        ] {
            let out = tree.join("clients").join(name);
            progress::long_step(
                "fetching Curator",
                &mut jars::maven(&recipe, &out),
                &self.paths.build_log("curator"),
            )?;
            jars::remove_foreign_libraries(&out)?;
        }
        self.fetch_from_debian(&recipe.join("debian.txt"), &work, &tree.join("clients/lib"))?;
        let mut pip = process::command("pip3", ["install", "--no-compile", "--no-deps"]);
        // For the Python of the image, whatever the host's is.
        pip.args(["--only-binary=:all:", "--implementation=cp"]);
        pip.arg(format!("--python-version={PYTHON}"));
        pip.args(["--require-hashes", "--target"]);
        pip.arg(tree.join("clients/python")).arg("--requirement");
        pip.arg(recipe.join("requirements.txt"));
        // The host may forbid pip to touch its own Python: this does not.
        pip.env("PIP_BREAK_SYSTEM_PACKAGES", "1");
        let log = self.paths.build_log("python");
        progress::long_step("fetching kazoo and Patroni", &mut pip, &log)?;
        pack(&work, &archive)?;
        Ok(archive)
    }

    fn build_clients(&self, keys: &Keys, archive: &Path) -> Result<()> {
        let libraries = self.build_client_libraries(&keys.libraries)?;
        let work = self.work("clients")?;
        let (tree, jars) = (work.join("tree"), work.join("libraries"));
        fs::create_dir_all(tree.join("clients/classes"))?;
        unpack(&libraries, &jars)?;
        let sources = self.paths.clients();
        for file in hash::files_below(&sources)? {
            let relative = file.strip_prefix(&sources)?;
            let to = tree.join("clients").join(relative);
            fs::create_dir_all(to.parent().context("a file with a parent")?)?;
            fs::copy(&file, &to)?;
        }
        compile_java(
            &java_below(&sources)?,
            &jars.join("clients/lib"),
            &tree.join("clients/classes"),
        )?;
        process::run(
            programs::go_build(&sources.join("go"), &tree.join("clients/go_lock"))
                .args(["-ldflags", "-s -w", "."]),
        )?;
        process::run(
            programs::go_build(&sources.join("go"), &tree.join("clients/go_lease"))
                .args(["-ldflags", "-s -w", "./lease"]),
        )?;
        self.build_rust_client(&tree.join("clients/rust_lock"))?;
        let image = Image {
            name: CLIENTS_IMAGE.to_owned(),
            layers: vec![
                self.layer.clone(),
                Layer::from_archive(&libraries)?,
                Layer::from_tree(&tree, &work.join("clients.tar"))?,
            ],
            config: json!({
                "User": format!("{USER}:{USER}"),
                "Env": [
                    format!("PATH={SYSTEM_PATH}"),
                    "CLASSPATH=/clients/lib/*:/clients/classes:/clients/java",
                    "PYTHONPATH=/clients/python:/clients",
                    "PYTHONUNBUFFERED=1",
                    "PYTHONDONTWRITEBYTECODE=1",
                ],
                "WorkingDir": "/clients",
                "Cmd": ["sleep", "infinity"],
            }),
        };
        finish(&[image], &work, archive)
    }

    /// The lock of the crate `zookeeper-client`, built like the operator, with the same lock file.
    fn build_rust_client(&self, program: &Path) -> Result<()> {
        let mut cargo = cargo::cargo("build")?;
        cargo.args(["--package", RUST_CLIENT, "--locked"]);
        let log = self.paths.build_log("rust");
        progress::long_step("building the client in Rust", &mut cargo, &log)?;
        let mut strip = process::command("strip", ["-o"]);
        strip
            .arg(program)
            .arg(cargo::programs(false)?.join(RUST_CLIENT));
        process::run(&mut strip).context("install Debian's package binutils")
    }
}

/// Writes an archive of images and removes what they were made from.
pub(super) fn finish(images: &[Image], work: &Path, archive: &Path) -> Result<()> {
    let partial = archive.with_extension("partial");
    oci::write_archive(images, work, &partial)?;
    fs::rename(&partial, archive)?;
    seed::remove(work)
}

/// Makes a layer of the directory `tree` in `work`, and removes `work`.
pub(super) fn pack(work: &Path, archive: &Path) -> Result<()> {
    let partial = archive.with_extension("partial");
    Layer::from_tree(&work.join("tree"), &partial)?;
    fs::rename(&partial, archive)?;
    seed::remove(work)
}

/// The files of a layer, below a new directory.
pub(super) fn unpack(layer: &Path, directory: &Path) -> Result<()> {
    fs::create_dir_all(directory)?;
    let mut tar = process::command("tar", ["--extract", "--file"]);
    process::run(tar.arg(layer).arg("--directory").arg(directory))
}

/// The Java sources below a directory.
pub(super) fn java_below(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = hash::files_below(directory)?;
    files.retain(|file| file.extension().is_some_and(|kind| kind == "java"));
    Ok(files)
}

/// Compiles programs against the jars of a directory.
pub(super) fn compile_java(sources: &[PathBuf], jars: &Path, classes: &Path) -> Result<()> {
    if sources.is_empty() {
        return Ok(());
    }
    let mut javac = process::command("javac", ["--release", "17", "-nowarn", "-cp"]);
    javac
        .arg(format!("{}/*", jars.display()))
        .arg("-d")
        .arg(classes)
        .args(sources);
    process::run(&mut javac)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_skip_comments_and_empty_lines() {
        assert_eq!(
            words_of("# a\n\n3.9.5 3.9.4\n x\n"),
            [vec!["3.9.5", "3.9.4"], vec!["x"]]
        );
    }
}

//! The operator's log: what is written, and how that is changed while it runs.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use tracing::{Dispatch, info, warn};
use tracing_subscriber::filter::FilterExt as _;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt, registry, reload};

use crate::traces::{Traces, not_sent};

/// How often the file with the filter is read. It has some bytes; a kubelet takes a minute or so to bring a
/// change of a ConfigMap.
const INTERVAL: Duration = Duration::from_secs(3);

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Replaces the filter of the running log.
type Replace = Box<dyn Fn(EnvFilter) -> Result<(), String> + Send>;

/// Starts the log. The filter is the text of `file`, and changes of the file are applied. Without a file, or
/// until the file contains a valid filter, it is RUST_LOG's, or `info`. Spans go to a collector, if there is
/// one; the filter does not affect them.
pub fn start(format: Format, file: Option<PathBuf>, traces: Option<&Traces>) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let (log, replace) = log(format, filter, traces, std::io::stdout);
    log.init();
    let Some(path) = file else { return };
    let mut file = FilterFile { path, seen: None };
    file.follow(&replace);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(INTERVAL).await;
            file.follow(&replace);
        }
    });
}

/// The log and, if there is a collector, what takes spans for it.
fn log(
    format: Format,
    filter: EnvFilter,
    traces: Option<&Traces>,
    writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
) -> (Dispatch, Replace) {
    let (filter, handle) = reload::Layer::new(filter);
    let lines = fmt::layer().with_writer(writer);
    let lines = match format {
        Format::Text => lines.boxed(),
        Format::Json => lines.json().flatten_event(true).boxed(),
    };
    let lines = lines.with_filter(not_sent().and(filter));
    let log = registry().with(lines);
    // An optional layer would count as interested in everything, so no call site would be disabled.
    let log = match traces {
        Some(traces) => Dispatch::new(log.with(traces.layer())),
        None => Dispatch::new(log),
    };
    let replace = move |filter| handle.reload(filter).map_err(|error| error.to_string());
    (log, Box::new(replace))
}

/// A file with a filter, such as a ConfigMap that is mounted.
///
/// The file is read each time: a kubelet replaces the folder behind a symbolic link, which a watch of the
/// file itself misses.
struct FilterFile {
    path: PathBuf,
    /// The result of the last read: the text, or the error.
    seen: Option<Result<String, String>>,
}

impl FilterFile {
    /// Applies a changed filter and logs the change.
    fn follow(&mut self, replace: &Replace) {
        let path = self.path.display().to_string();
        match self.changed() {
            None => {}
            Some(Ok(filter)) => {
                // Logged before the change, since the new filter may suppress this line.
                info!(%filter, "taking the log filter of the file");
                if let Err(error) = replace(filter) {
                    warn!(%error, "the log filter cannot be changed");
                }
            }
            Some(Err(error)) => {
                warn!(file = path, %error, "the file is not a log filter; the filter in use stays");
            }
        }
    }

    /// The filter, or what is wrong with it, if the file is not what it was.
    fn changed(&mut self) -> Option<Result<EnvFilter, String>> {
        let found = fs::read_to_string(&self.path)
            .map(|text| text.trim().to_owned())
            .map_err(|error| error.to_string());
        if self.seen.as_ref() == Some(&found) {
            return None;
        }
        self.seen = Some(found.clone());
        Some(found.and_then(|text| parse(&text)))
    }
}

/// A filter such as `info,bellwether=debug`.
fn parse(text: &str) -> Result<EnvFilter, String> {
    if text.is_empty() {
        return Err("it is empty; write a level such as info".to_owned());
    }
    // The library takes a word that is not a level for a part of the program, and logs all lines of that part
    // and no others: a misspelt level would silence the log.
    if !text.contains('[') {
        let levels = ["off", "error", "warn", "info", "debug", "trace"];
        let is_level = |word: &str| levels.contains(&word.to_lowercase().as_str());
        for word in text.split(',').map(str::trim) {
            let level = word.rsplit('=').next().unwrap_or(word);
            if !is_level(level) {
                return Err(format!(
                    "{word}: {level:?} is no level; write one of {}, for a part of the program as in info,bellwether=debug",
                    levels.join(", ")
                ));
            }
        }
    }
    EnvFilter::builder()
        .parse(text)
        .map_err(|error| format!("{text:?}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::symlink;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::traces::SPANS;
    use crate::traces::tests::{ALONE, Kept};

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Paper {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    /// A folder as a kubelet mounts a ConfigMap: the file is a link through a link that is replaced.
    struct Mounted(tempfile::TempDir);

    impl Mounted {
        fn write(&self, revision: &str, text: &str) {
            let root = self.0.path();
            fs::create_dir(root.join(revision)).unwrap();
            fs::write(root.join(revision).join("filter"), text).unwrap();
            symlink(revision, root.join("new")).unwrap();
            fs::rename(root.join("new"), root.join("..data")).unwrap();
            let _ = symlink("..data/filter", root.join("filter"));
        }
    }

    #[test]
    fn a_change_of_the_file_changes_what_is_logged_and_a_bad_one_does_not() {
        let mounted = Mounted(tempfile::tempdir().unwrap());
        let paper = Paper::default();
        let writer = paper.clone();
        let filter = EnvFilter::new("info");
        let (log, replace) = log(Format::Text, filter, None, move || writer.clone());
        let mut file = FilterFile {
            path: mounted.0.path().join("filter"),
            seen: None,
        };
        tracing::dispatcher::with_default(&log, || {
            tracing::debug!("one");
            mounted.write("1", "debug\n");
            file.follow(&replace);
            tracing::debug!("two");
            mounted.write("2", "info,bellwether=loud");
            file.follow(&replace);
            file.follow(&replace);
            tracing::debug!("three");
            mounted.write("3", "warn");
            file.follow(&replace);
            tracing::info!("four");
            fs::remove_file(mounted.0.path().join("filter")).unwrap();
            file.follow(&replace);
            tracing::warn!("five");
        });
        let text = paper.text();
        let has = |word: &str| text.lines().any(|line| line.ends_with(word));
        let shown = ["one", "two", "three", "four", "five"].map(has);
        assert_eq!(shown, [false, true, true, false, true], "{text}");
        assert_eq!(text.matches("bellwether=loud").count(), 1, "{text}");
        assert!(text.contains("No such file"), "{text}");
    }

    #[test]
    fn spans_for_a_collector_are_no_matter_of_the_log_and_none_without_a_collector() {
        let _alone = ALONE.blocking_lock();
        for (filter, taken) in [("trace", false), ("trace", true), ("off", true)] {
            let (kept, traces) = Kept::start();
            let paper = Paper::default();
            let writer = paper.clone();
            let traces = taken.then_some(&traces);
            let filter = EnvFilter::new(filter);
            let logs = filter.to_string() == "trace";
            let (log, _) = log(Format::Json, filter, traces, move || writer.clone());
            tracing::dispatcher::with_default(&log, || {
                let span = tracing::info_span!(target: SPANS, "part");
                assert_eq!(span.is_disabled(), !taken);
                span.in_scope(|| info!("line"));
            });
            assert_eq!(kept.spans().len(), usize::from(taken));
            let text = paper.text();
            assert_eq!(text.contains("line"), logs, "{text}");
            assert!(!text.contains("part"), "{text}");
        }
    }

    #[test]
    fn a_filter_has_to_say_something() {
        assert!(parse("").unwrap_err().contains("empty"));
        assert!(parse("info,bellwether=loud").is_err());
        let misspelt = parse("debgu").unwrap_err();
        assert!(misspelt.contains("\"debgu\" is no level"), "{misspelt}");
        assert!(parse("WARN,kube=info").is_ok());
        assert!(parse("info,bellwether::lease").is_err());
        assert!(parse("info,bellwether=debug,kube=warn").is_ok());
    }
}

//! Which options of the Java virtual machine a user may set.
//!
//! A system property `-Dzookeeper.KEY` is what ZooKeeper makes of a line `KEY=value` of `zoo.cfg`
//! (`QuorumPeerConfig.parseProperties`), so it is judged by the same table of keys as `config.additional`.
//! Other options pass if they are on a list: what only tunes the virtual machine, Java's network and its TLS.

use super::settings::{self, KeyKind};

/// The prefix of ZooKeeper's own system properties.
const PROPERTY: &str = "-Dzookeeper.";

/// How the options begin that may be set, unless [`REFUSED`] or the table of keys says otherwise.
const ALLOWED: &[&str] = &[
    "-XX:",
    "-Xlog",
    "-Xss",
    "-Xmn",
    "-Xint",
    "-Xrs",
    "-Xcheck:",
    "-Xshare:",
    "-server",
    "-verbose:",
    "--add-opens=",
    "--add-exports=",
    "--add-reads=",
    "--enable-native-access=",
    PROPERTY,
    "-Djute.",
    "-Dznode.container.",
    "-Djava.io.tmpdir=",
    "-Djava.net.prefer",
    "-Djava.security.egd=",
    "-Djava.security.debug=",
    "-Djavax.net.debug=",
    "-Djdk.tls.",
    "-Djdk.nio.",
    "-Dio.netty.",
    "-Dfile.encoding=",
    "-Duser.timezone=",
    "-Dsun.net.inetaddr.",
    "-Dsun.nio.",
];

/// Options that are refused for one reason.
struct Refused {
    /// How they begin.
    begin: &'static [&'static str],
    /// What they are as a whole.
    whole: &'static [&'static str],
    /// Why, and what to do instead.
    why: &'static str,
}

const REFUSED: &[Refused] = &[
    Refused {
        begin: &[
            "-Xmx",
            "-Xms",
            "-mx",
            "-ms",
            "-XX:MaxHeapSize=",
            "-XX:InitialHeapSize=",
            "-XX:MinHeapSize=",
        ],
        whole: &["-XX:+AggressiveHeap"],
        why: "it changes the heap: set jvm.heap",
    },
    Refused {
        begin: &[
            "-javaagent",
            "-agentlib",
            "-agentpath",
            "-Xrun",
            "-Xbootclasspath",
            "-Djava.class.path",
            "-Djava.system.class.loader",
            "-classpath",
            "--class-path",
            "--module",
            "--upgrade-module-path",
            "--patch-module",
            "-jar",
            "-XX:SharedArchiveFile=",
        ],
        whole: &["-cp", "-p", "-m"],
        why: "it loads other code into the server: build an image that has it, and name it in image",
    },
    Refused {
        begin: &["-XX:OnOutOfMemoryError", "-XX:OnError"],
        whole: &[],
        why: "it starts another program in the server's container: a server that is out of memory ends, \
              and is started again",
    },
    Refused {
        begin: &[
            "-XX:Flags=",
            "-XX:VMOptionsFile=",
            "-XX:CompileCommandFile=",
        ],
        whole: &[],
        why: "it reads further options from a file: write them here, one each",
    },
    Refused {
        begin: &["-Dcom.sun.management."],
        whole: &[],
        why: "it opens the server to remote management: for measurements set metrics.enabled",
    },
    Refused {
        begin: &[
            "-Djava.security.properties",
            "-Dreadonlymode.enabled",
            "-XX:-ExitOnOutOfMemoryError",
        ],
        whole: &[],
        why: "it belongs to the operator, and there is no field for it",
    },
    Refused {
        begin: &["-help", "--help", "--describe-module"],
        whole: &[
            "-h",
            "-?",
            "-X",
            "-d",
            "-version",
            "--version",
            "-fullversion",
            "--full-version",
            "--list-modules",
            "--dry-run",
            "--validate-modules",
        ],
        why: "with it java prints something and ends, and no server starts: leave it out",
    },
    Refused {
        begin: &[],
        whole: &[
            "--add-opens",
            "--add-exports",
            "--add-reads",
            "--add-modules",
            "--limit-modules",
        ],
        why: "it lacks its value: write it after '=', such as --add-opens=java.base/java.lang=ALL-UNNAMED",
    },
];

const NOT_LISTED: &str = "it is none of the options that tune the virtual machine, Java's network or its TLS: build an image that has it, and name it in image";
const RESERVED: &str = "the operator owns this setting of ZooKeeper, and there is no field for it";
const TYPED: &str = "this setting of ZooKeeper has a field of its own under config";
const UNKNOWN: &str =
    "ZooKeeper reads no such property as far as Bellwether knows; check the spelling";
/// What every option has to be.
pub const FORM: &str = "each of jvm.additionalOptions must start with '-' and hold no white space";

/// Whether it is one option and no more.
pub fn is_option(option: &str) -> bool {
    option.starts_with('-') && option.len() > 1 && !option.contains(char::is_whitespace)
}

/// Why an option is refused and what to do instead; `None` if it may be set.
pub fn refusal(option: &str) -> Option<&'static str> {
    let refused = REFUSED.iter().find(|r| {
        r.whole.contains(&option) || r.begin.iter().any(|begin| option.starts_with(begin))
    });
    refused.map(|r| r.why).or_else(|| {
        if !ALLOWED.iter().any(|begin| option.starts_with(begin)) {
            return Some(NOT_LISTED);
        }
        let property = option.strip_prefix(PROPERTY)?;
        let key = property.split_once('=').map_or(property, |(key, _)| key);
        match settings::classify(key) {
            KeyKind::Known => None,
            KeyKind::Typed => Some(TYPED),
            KeyKind::Reserved => Some(RESERVED),
            KeyKind::Unknown => Some(UNKNOWN),
        }
    })
}

/// The key and the value of an option that sets a known setting of ZooKeeper.
pub fn setting(option: &str) -> Option<(&str, &str)> {
    let property = option.strip_prefix(PROPERTY)?;
    let (key, value) = property.split_once('=').unwrap_or((property, ""));
    (settings::classify(key) == KeyKind::Known).then_some((key, value))
}

/// A text as a part of a regular expression that stands for itself.
fn literal(text: &str) -> String {
    let special = |c: char| "+?.*()[]|^$".contains(c);
    text.chars().fold(String::new(), |mut all, c| {
        if special(c) {
            all.extend(['[', c, ']']);
        } else {
            all.push(c);
        }
        all
    })
}

fn any_of<'t>(texts: impl Iterator<Item = &'t str>) -> String {
    texts.map(literal).collect::<Vec<_>>().join("|")
}

/// CEL tests of an option `o`, and why one for which a test holds is refused: [`refusal`] in CEL.
///
/// The keys are looked for in a list and not by a regular expression: the API server estimates what a rule
/// costs, and refuses a CustomResourceDefinition with one that is too dear.
fn tests() -> Vec<(String, &'static str)> {
    let mut all: Vec<(String, &str)> = Vec::new();
    for refused in REFUSED {
        let begin = any_of(refused.begin.iter().copied());
        let whole = any_of(refused.whole.iter().copied());
        let pattern = match (begin.is_empty(), whole.is_empty()) {
            (false, false) => format!("^({begin}|({whole})$)"),
            (true, _) => format!("^({whole})$"),
            (_, true) => format!("^({begin})"),
        };
        all.push((format!("o.matches('{pattern}')"), refused.why));
    }
    let prefixes = any_of(settings::RESERVED_PREFIXES.iter().copied());
    let property = literal(PROPERTY);
    all.push((format!("o.matches('^{property}({prefixes})')"), RESERVED));
    all.push((is_one_of(settings::RESERVED), RESERVED));
    all.push((is_one_of(settings::TYPED), TYPED));
    // The reasons for single options say more.
    let allowed = any_of(ALLOWED.iter().copied());
    all.push((format!("!o.matches('^({allowed})')"), NOT_LISTED));
    all
}

/// The CEL test whether an option sets one of these keys.
fn is_one_of(keys: &[&str]) -> String {
    let keys = settings::cel_list(keys);
    format!("o.startsWith('{PROPERTY}') && {KEY} in {keys}")
}

/// The key of an option that begins with [`PROPERTY`], in CEL.
const KEY: &str = "o.substring(12).split('=')[0]";

/// The CEL rule that refuses what [`refusal`] refuses, but properties that are not known.
pub fn refused_rule() -> String {
    let all: Vec<String> = tests().into_iter().map(|(test, _)| test).collect();
    format!("self.all(o, !({}))", all.join(" || "))
}

/// The CEL expression of the sentence for [`refused_rule`].
pub fn refused_message() -> String {
    tests()
        .into_iter()
        .rev()
        .fold("'refused'".to_owned(), |rest, (test, why)| {
            let why = why.replace('\'', "\\'");
            format!(
                "self.exists(o, {test}) ? 'jvm.additionalOptions must not hold ' + \
                 self.filter(o, {test})[0] + ': {why}' : {rest}"
            )
        })
}

/// The CEL rule that refuses properties which ZooKeeper would ignore silently.
pub fn known_rule() -> String {
    format!("self.all(o, !({}))", unknown_test())
}

/// The CEL expression of the sentence for [`known_rule`].
pub fn known_message() -> String {
    format!(
        "'jvm.additionalOptions must not hold ' + self.filter(o, {})[0] + ': {UNKNOWN}'",
        unknown_test()
    )
}

/// Other rules speak of keys that are not free to set.
fn unknown_test() -> String {
    let all = [settings::KNOWN, settings::TYPED, settings::RESERVED].concat();
    let keys = settings::cel_list(&all);
    let prefixes = any_of(settings::RESERVED_PREFIXES.iter().copied());
    format!(
        "o.startsWith('{PROPERTY}') && !({KEY} in {keys}) && !o.matches('^{}({prefixes})')",
        literal(PROPERTY)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_by_the_fields_or_brings_in_code_is_refused() {
        for option in [
            "-Xmx2g",
            "-XX:MaxHeapSize=1g",
            "-Dzookeeper.forceSync=no",
            "-Dzookeeper.forceSync",
            "-Dzookeeper.snapshot.trust.empty=true",
            "-Dzookeeper.skipACL=yes",
            "-Dzookeeper.db.autocreate=true",
            "-Dzookeeper.DigestAuthenticationProvider.superDigest=super:x",
            "-Dzookeeper.SASLAuthenticationProvider.superPassword=x",
            "-Dzookeeper.superUser=x",
            "-Dzookeeper.ssl.quorum.hostnameVerification=false",
            "-Dzookeeper.snapCount=5",
            "-Dzookeeper.snapCout=5",
            "-Dzookeeper.test.allowDiscontinuousProposals=true",
            "-Dreadonlymode.enabled=true",
            "-Djava.security.properties=/tmp/x",
            "-Djava.security.properties==/tmp/x",
            "-javaagent:/tmp/a.jar",
            "-agentlib:jdwp=transport=dt_socket",
            "-agentpath:/tmp/a.so",
            "-XX:Flags=/tmp/f",
            "-XX:VMOptionsFile=/tmp/f",
            "-XX:OnOutOfMemoryError=kill",
            "-Dcom.sun.management.jmxremote.port=9010",
            "-version",
            "-cp",
            "--add-opens",
            "-Dapp=zookeeper.forceSync",
            "-Djava.security.auth.login.config=/tmp/x",
            "-Dlogback.configurationFile=/tmp/x",
            "-Djava.library.path=/tmp",
            "-XX:SharedArchiveFile=/data/x.jsa",
            "-XshowSettings",
        ] {
            assert!(is_option(option) && refusal(option).is_some(), "{option}");
        }
        for option in [
            "@/tmp/args",
            "-",
            "",
            "-XX:+UseZGC -Xmx1g",
            "-a\u{a0}b",
            "Xmx1g",
        ] {
            assert!(!is_option(option), "{option:?}");
        }
    }

    #[test]
    fn what_only_tunes_passes() {
        for option in [
            "-XX:+UseG1GC",
            "-XX:MaxGCPauseMillis=50",
            "-XX:MaxMetaspaceSize=128m",
            "-XX:+HeapDumpOnOutOfMemoryError",
            "-XX:TieredStopAtLevel=1",
            "-Xss512k",
            "-Xlog:gc*:file=/logs/gc.log",
            "-Djute.maxbuffer=4194304",
            "-Dzookeeper.globalOutstandingLimit=2000",
            "-Dzookeeper.nio.numSelectorThreads=2",
            "-Djava.security.egd=file:/dev/./urandom",
            "-Djava.net.preferIPv4Stack=true",
            "-Dznode.container.checkIntervalMs=1000",
            "--add-opens=java.base/java.lang=ALL-UNNAMED",
            "-Djdk.tls.namedGroups=secp256r1",
        ] {
            assert!(is_option(option), "{option}");
            assert_eq!(refusal(option), None, "{option}");
        }
    }

    #[test]
    fn the_key_follows_the_prefix() {
        assert!(KEY.contains(&format!("({})", PROPERTY.len())));
    }

    #[test]
    fn every_key_of_the_table_is_judged_alike_as_a_property() {
        let all = [settings::KNOWN, settings::TYPED, settings::RESERVED].concat();
        for key in all {
            let refused = refusal(&format!("-Dzookeeper.{key}=1")).is_some();
            let known = settings::classify(key) == KeyKind::Known;
            assert_eq!(refused, !known, "{key}");
        }
    }
}

use super::*;

fn member() -> Identity {
    Identity {
        ensemble: "shop/zk".to_owned(),
        server_id: 2,
    }
}

fn mark(ensemble: &str, id: u64) -> Option<Vec<u8>> {
    Some(
        mark_of(&Identity {
            ensemble: ensemble.to_owned(),
            server_id: id,
        })
        .into_bytes(),
    )
}

fn text(text: &str) -> Option<Vec<u8>> {
    Some(text.as_bytes().to_vec())
}

fn database() -> Option<String> {
    Some("/data/version-2/snapshot.0".to_owned())
}

#[test]
fn its_own_volume_and_an_empty_one_are_accepted() {
    let accepted = [
        (Found::default(), false),
        // The mark is written first, so a member may find it without myid.
        (
            Found {
                mark: mark("shop/zk", 2),
                ..Found::default()
            },
            true,
        ),
        (
            Found {
                mark: mark("shop/zk", 2),
                myid: text("2\n"),
                database: database(),
                log_mark: None,
            },
            true,
        ),
        (
            Found {
                mark: mark("shop/zk", 2),
                log_mark: Some(mark("shop/zk", 2)),
                ..Found::default()
            },
            true,
        ),
        // It never had a database, so no log is missing.
        (
            Found {
                mark: mark("shop/zk", 2),
                log_mark: Some(None),
                ..Found::default()
            },
            true,
        ),
        // A first run that ended between the two marks: the log's mark is written first.
        (
            Found {
                log_mark: Some(mark("shop/zk", 2)),
                ..Found::default()
            },
            false,
        ),
        (
            Found {
                log_mark: Some(None),
                ..Found::default()
            },
            false,
        ),
        (
            Found {
                myid: text("2"),
                ..Found::default()
            },
            false,
        ),
    ];
    for (found, marked) in accepted {
        assert_eq!(check(&member(), &found), Ok(marked), "{found:?}");
    }
}

#[test]
fn every_other_volume_is_refused_with_what_is_on_it_and_what_to_do() {
    let refused = [
        (
            Found {
                mark: mark("shop/other", 2),
                ..Found::default()
            },
            "another ensemble: it is marked as server 2 of ensemble shop/other",
        ),
        (
            Found {
                mark: mark("shop/zk", 3),
                ..Found::default()
            },
            "another member: it is marked as server 3 of ensemble shop/zk",
        ),
        (
            Found {
                myid: text("3"),
                ..Found::default()
            },
            "the myid of server 3",
        ),
        (
            Found {
                mark: mark("shop/zk", 2),
                myid: text("3"),
                ..Found::default()
            },
            "the myid of server 3",
        ),
        (
            Found {
                database: database(),
                ..Found::default()
            },
            "(/data/version-2/snapshot.0) but no mark",
        ),
        (
            Found {
                database: database(),
                myid: text("2"),
                ..Found::default()
            },
            "but no mark",
        ),
        (
            Found {
                mark: mark("shop/zk", 2),
                log_mark: Some(None),
                database: database(),
                ..Found::default()
            },
            "transaction log volume is new",
        ),
        (
            Found {
                log_mark: Some(mark("shop/zk", 2)),
                database: database(),
                ..Found::default()
            },
            "data volume is new",
        ),
        (
            Found {
                mark: Some(mark_with(&member(), None, Some(1)).into_bytes()),
                database: database(),
                ..Found::default()
            },
            "its transaction log is on another volume",
        ),
        (
            Found {
                mark: mark("shop/zk", 2),
                log_mark: Some(mark("a/b", 2)),
                ..Found::default()
            },
            "the transaction log volume belongs to another ensemble",
        ),
    ];
    for (found, words) in refused {
        let message = check(&member(), &found).unwrap_err();
        assert!(message.contains(words), "{message}");
        assert!(
            message.contains("server 2 of ensemble shop/zk"),
            "{message}"
        );
        assert!(message.contains("delete"), "{message}");
    }
}

#[test]
fn two_volumes_of_different_times_are_refused() {
    let at = |starts| Some(mark_with(&member(), None, Some(starts)).into_bytes());
    let found = |data, log| Found {
        mark: at(data),
        log_mark: Some(at(log)),
        database: database(),
        ..Found::default()
    };
    // The marks are written one after the other, the log's first.
    for (data, log) in [(3, 3), (3, 4)] {
        assert_eq!(check(&member(), &found(data, log)), Ok(true));
        assert_eq!(next_start(&found(data, log)), data + 1);
    }
    for (data, log, old) in [(4, 3, "transaction log"), (3, 5, "data")] {
        let message = check(&member(), &found(data, log)).unwrap_err();
        let words = format!("the {old} volume of server 2 of ensemble shop/zk is older");
        assert!(message.contains(&words), "{message}");
    }
    // Without a database there is nothing old.
    let empty = Found {
        database: None,
        ..found(7, 1)
    };
    assert_eq!(check(&member(), &empty), Ok(true));
}

#[test]
fn malformed_files_are_refused_and_never_a_panic() {
    let marks: &[(&[u8], &str)] = &[
        (b"", "is no JSON"),
        (b"\xff\xfe\x00", "is no JSON"),
        (b"{", "is no JSON"),
        (b"[]", "has no known format"),
        (
            b"{\"ensemble\":\"shop/zk\",\"serverId\":2}",
            "has no known format",
        ),
        (b"{\"format\":2}", "a newer version wrote it"),
        (b"{\"format\":-1}", "has no known format"),
        (
            b"{\"format\":1,\"ensemble\":7,\"serverId\":2}",
            "does not name",
        ),
        (
            b"{\"format\":1,\"ensemble\":\"shop/zk\",\"serverId\":\"2\"}",
            "does not name",
        ),
        (
            b"{\"format\":1,\"ensemble\":\"shop/zk\",\"serverId\":1e400}",
            "is no JSON",
        ),
    ];
    for (bytes, words) in marks {
        let found = Found {
            mark: Some(bytes.to_vec()),
            ..Found::default()
        };
        let message = check(&member(), &found).unwrap_err();
        assert!(message.contains(words), "{message}");
    }
    for myid in [
        &b""[..],
        b"two",
        b"\xc3\x28",
        b"2 3",
        b"-2",
        b"99999999999999999999999",
    ] {
        let found = Found {
            myid: Some(myid.to_vec()),
            ..Found::default()
        };
        let message = check(&member(), &found).unwrap_err();
        assert!(message.contains("holds no server id"), "{message}");
    }
}

#[test]
fn a_message_shows_only_the_beginning_of_a_long_file() {
    let found = Found {
        myid: Some(vec![b'x'; 1 << 20]),
        ..Found::default()
    };
    assert!(check(&member(), &found).unwrap_err().len() < 1000);
}

#[test]
fn the_mark_reads_back_as_written() {
    assert_eq!(
        parse_mark(mark_of(&member()).as_bytes(), "data"),
        Ok(member())
    );
}

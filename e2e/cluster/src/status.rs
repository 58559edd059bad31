//! What `status` says.

use std::collections::BTreeMap;

use anyhow::Result;

use super::{
    keeper::Health,
    network,
    paths::Paths,
    state::{self, Running},
};
use crate::process;

/// One line per component that is not well, and a summary.
pub(crate) fn components(paths: &Paths) -> Result<String> {
    let health = state::read_json::<BTreeMap<String, Health>>(&paths.components_file())?;
    Ok(render(&health.unwrap_or_default()))
}

fn render(health: &BTreeMap<String, Health>) -> String {
    let running = health.values().filter(|health| health.running).count();
    let mut text = format!("components: {running} of {} running", health.len());
    for (name, health) in health {
        match health {
            Health { running: false, .. } => text.push_str(&format!("\n  {name} is not running")),
            Health { restarts: 0, .. } => {}
            Health { restarts, .. } => {
                text.push_str(&format!("\n  {name} was started again {restarts} times"));
            }
        }
    }
    text
}

/// The nodes that are cut off.
pub(crate) fn cut_nodes(running: Running, nodes: u8) -> Result<Vec<u8>> {
    let mut command = process::command("nsenter", ["--net", "--target"]);
    command.arg(running.inner.pid().to_string());
    let links = process::output(command.args(["--", "ip", "-oneline", "link", "show"]))?;
    Ok((1..=nodes)
        .filter(|number| is_down(&links, &network::node_cable(*number)))
        .collect())
}

fn is_down(links: &str, cable: &str) -> bool {
    // "5: n1@if2: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 ..."
    links.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let named = words
            .next()
            .is_some_and(|name| name.split('@').next() == Some(cable));
        let flags = words.next().unwrap_or_default().trim_matches(['<', '>']);
        named && !flags.split(',').any(|flag| flag == "UP")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_cable_is_not_up() {
        let links = "3: n1@if2: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500\n\
                     4: n2@if2: <BROADCAST,MULTICAST> mtu 1500\n";
        assert!(!is_down(links, "n1"));
        assert!(is_down(links, "n2"));
        assert!(!is_down(links, "n3"));
    }

    #[test]
    fn healthy_components_are_one_line() {
        let well = Health {
            running: true,
            restarts: 0,
        };
        let ill = Health {
            running: false,
            restarts: 2,
        };
        let all_well = BTreeMap::from([("a".to_owned(), well)]);
        assert_eq!(render(&all_well), "components: 1 of 1 running");
        let one_ill = BTreeMap::from([("a".to_owned(), well), ("b".to_owned(), ill)]);
        assert_eq!(
            render(&one_ill),
            "components: 1 of 2 running\n  b is not running"
        );
    }
}

//! Changes of size.

use anyhow::Result;

use super::plain::{Pattern, Strategy};
use super::subject::{Measured, Subject};
use super::table::Table;
use super::{Options, Way, in_namespace};
use crate::kubectl::Kubectl;

/// The changes that are measured.
const CHANGES: [(u16, u16); 4] = [(3, 5), (5, 3), (1, 3), (3, 9)];

/// Measures each change in every way, and prints a table of each.
///
/// # Errors
/// When a run could not be carried out, or the operator lost a write; all others are printed still.
pub fn run(kubectl: &Kubectl, options: &Options) -> Result<()> {
    let pattern = Pattern::read(kubectl)?;
    let mut tables: Vec<Table> = CHANGES
        .iter()
        .map(|(from, to)| Table::new(&format!("From {from} to {to} members")))
        .collect();
    for repetition in 1..=options.repetitions {
        for (change, table) in CHANGES.into_iter().zip(&mut tables) {
            // The other ways take minutes for many members.
            let is_measured = |way: &Way| change.1 <= 5 || *way == Way::RunTime;
            for way in options.ways().filter(is_measured) {
                let run = once(kubectl, options, &pattern, way, change, repetition);
                table.add(repetition, way, run);
            }
        }
    }
    options.install(Way::Operator)?;
    for table in &tables {
        table.print();
    }
    tables.iter().try_for_each(Table::assert_safe)
}

fn once(
    kubectl: &Kubectl,
    options: &Options,
    pattern: &Pattern,
    way: Way,
    (from, to): (u16, u16),
    repetition: u16,
) -> Result<Measured> {
    let namespace = format!("bench-{from}-{to}-{}-{repetition}", way.word());
    options.install(way)?;
    in_namespace(kubectl, &namespace, |world| {
        let subject = Subject::start(world, options, way, pattern, from, from.max(to))?;
        subject.measure(to, |subject| match way {
            Way::Operator | Way::RunTime | Way::Other => subject.ensemble().scale(to),
            Way::Plain => pattern.apply(world, to, to, Strategy::RollingUpdate),
            Way::Hand => by_hand(subject, pattern, from, to),
        })
    })
}

/// The same chain of single members in the best order.
fn by_hand(subject: &Subject<'_>, pattern: &Pattern, from: u16, to: u16) -> Result<()> {
    let mut size = from;
    while size < to {
        grow(subject, pattern, size + 1)?;
        size += 1;
    }
    while size > to {
        shrink(subject, pattern, size - 1)?;
        size -= 1;
    }
    Ok(())
}

/// The newcomer starts with the new list and follows; then the others take the list up, the leader
/// last.
fn grow(subject: &Subject<'_>, pattern: &Pattern, size: u16) -> Result<()> {
    pattern.apply(subject.world(), size, size, Strategy::OnDelete)?;
    let newcomer = subject.ensemble().pod(size - 1);
    // The second member cannot follow before the first has it in its list.
    if size > 2 {
        subject.wait_serves(&newcomer)?;
    }
    subject.restart_all(size - 1)?;
    subject.wait_serves(&newcomer)
}

/// The leaver gives up the lead if it has it; then the others take the new list up, and it goes.
fn shrink(subject: &Subject<'_>, pattern: &Pattern, size: u16) -> Result<()> {
    let leaver = subject.ensemble().pod(size);
    if subject.leader()? == leaver {
        subject.restart(&leaver)?;
    }
    pattern.apply(subject.world(), size, size + 1, Strategy::OnDelete)?;
    subject.restart_all(size)?;
    pattern.apply(subject.world(), size, size, Strategy::OnDelete)
}

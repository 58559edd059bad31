//! A restart of every member: `kubectl rollout restart`.

use anyhow::Result;

use super::plain::{NAME, Pattern};
use super::subject::{Measured, Subject};
use super::table::Table;
use super::{Options, Way, in_namespace};
use crate::kubectl::Kubectl;

/// The size of the ensemble.
const SIZE: u16 = 3;

/// Measures it in every way, and prints the table.
///
/// # Errors
/// When a run could not be carried out, or the operator lost a write; all others are printed still.
pub fn run(kubectl: &Kubectl, options: &Options) -> Result<()> {
    let pattern = Pattern::read(kubectl)?;
    let title = format!("Rolling restart of {SIZE} members");
    let mut table = Table::new(&title);
    for repetition in 1..=options.repetitions {
        // A roll is the same whether lists change at run time or not.
        for way in options.ways().filter(|way| *way != Way::RunTime) {
            table.add(
                repetition,
                way,
                once(kubectl, options, &pattern, way, repetition),
            );
        }
    }
    options.install(Way::Operator)?;
    table.print();
    table.assert_safe()
}

fn once(
    kubectl: &Kubectl,
    options: &Options,
    pattern: &Pattern,
    way: Way,
    repetition: u16,
) -> Result<Measured> {
    let namespace = format!("bench-roll-{}-{repetition}", way.word());
    options.install(way)?;
    in_namespace(kubectl, &namespace, |world| {
        let subject = Subject::start(world, options, way, pattern, SIZE, SIZE)?;
        subject.measure(SIZE, |subject| {
            let target = format!("statefulset/{NAME}");
            world.run(&["rollout", "restart", &target])?;
            if way == Way::Hand {
                subject.restart_all(SIZE)?;
            }
            Ok(())
        })
    })
}

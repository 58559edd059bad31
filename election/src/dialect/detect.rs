//! Which dialect the znodes of an election look like.

use bellwether_api::election::DialectType;
use bellwether_api::election::recipe::{DetectedBy, Recipe, Registration};

use super::{Names, looks_sequential};
use crate::decode;

/// What the dialect `Auto` makes of the znodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detection {
    /// They are of this dialect.
    Found(DialectType),
    /// Nothing looks like a candidate of a dialect that can be detected.
    Nothing {
        /// How many children end in a sequence number all the same.
        sequential: usize,
    },
    /// There are children of several dialects, or of one dialect and of unknown ones.
    Ambiguous {
        /// How many there are of each.
        counts: Vec<(DialectType, usize)>,
        /// How many end in a sequence number and are of no known dialect.
        unknown: usize,
    },
}

/// A child of the path: whether its name ends in a sequence number, and which of the recipes it fits, one bit
/// for each.
struct Child {
    sequential: bool,
    fits: u64,
}

/// A recipe that names of children are tried with.
struct Tried {
    dialect: DialectType,
    names: Names,
    /// Whether a name was found that has no empty label. Names with an empty label could be those of another
    /// recipe, so they count only beside others.
    labelled: bool,
}

/// The recipes that can be detected by names, in the order of the table: a name that fits several belongs to
/// the first of them. Names that show nothing without the place of the registration are tried only where
/// `has_registration` says that there is one.
fn tried(has_registration: impl Fn(&Registration) -> bool) -> Vec<Tried> {
    let by_names = |recipe: &&Recipe| match recipe.detection {
        DetectedBy::Names => true,
        DetectedBy::NamesAndRegistration => has_registration(&recipe.registration),
        DetectedBy::Nothing | DetectedBy::NodeName(_) | DetectedBy::Data | DetectedBy::AnyNode => {
            false
        }
    };
    let all = DialectType::ALL.into_iter().filter_map(|dialect| {
        let recipe = dialect.recipe().filter(by_names)?;
        Some(Tried {
            dialect,
            names: Names::of_recipe(recipe, "")?,
            labelled: false,
        })
    });
    all.collect()
}

/// Detects the dialect by the names of children.
///
/// It is the first one that some child fits and that every child with a sequence number at its end fits.
/// Children without a number are no candidates in most dialects, so they do not count.
pub(crate) fn detect<'n>(
    children: impl IntoIterator<Item = &'n str>,
    has_registration: impl Fn(&Registration) -> bool,
) -> Detection {
    let mut recipes = tried(has_registration);
    let mut children: Vec<Child> = children
        .into_iter()
        .map(|name| {
            let mut fits = 0;
            for (at, recipe) in recipes.iter_mut().enumerate() {
                if let Some(ranked) = recipe.names.parse(name) {
                    fits |= 1 << at;
                    recipe.labelled |= ranked.label != Some("");
                }
            }
            let sequential = looks_sequential(name);
            Child { sequential, fits }
        })
        .collect();
    for (at, _) in recipes.iter().enumerate().filter(|(_, r)| !r.labelled) {
        for child in &mut children {
            child.fits &= !(1 << at);
        }
    }
    let fits = |child: &Child, at: usize| child.fits & (1 << at) != 0;
    for (at, recipe) in recipes.iter().enumerate() {
        let some = children.iter().any(|child| fits(child, at));
        if some
            && children
                .iter()
                .all(|child| !child.sequential || fits(child, at))
        {
            return Detection::Found(recipe.dialect);
        }
    }
    let counts: Vec<(DialectType, usize)> = recipes
        .iter()
        .enumerate()
        .map(|(at, recipe)| {
            let first = |child: &&Child| child.fits.trailing_zeros() as usize == at;
            (recipe.dialect, children.iter().filter(first).count())
        })
        .filter(|(_, count)| *count > 0)
        .collect();
    let sequential = children.iter().filter(|child| child.sequential);
    if counts.is_empty() {
        let sequential = sequential.count();
        Detection::Nothing { sequential }
    } else {
        let unknown = sequential.filter(|child| child.fits == 0).count();
        Detection::Ambiguous { counts, unknown }
    }
}

/// Detects the dialect of an ephemeral node, which is the leader's own, by its name and data. A node that no
/// recipe claims gets the first dialect that takes any node.
pub(crate) fn detect_node(name: &str, data: &[u8]) -> Option<DialectType> {
    let recognises = |recipe: &Recipe| match recipe.detection {
        DetectedBy::NodeName(own) => own == name,
        DetectedBy::Data => decode::understands(recipe.identity, data),
        DetectedBy::Nothing
        | DetectedBy::Names
        | DetectedBy::NamesAndRegistration
        | DetectedBy::AnyNode => false,
    };
    let takes_any = |recipe: &Recipe| recipe.detection == DetectedBy::AnyNode;
    let find = |fits: &dyn Fn(&Recipe) -> bool| {
        let mut dialects = DialectType::ALL.into_iter();
        dialects.find(|dialect| dialect.recipe().is_some_and(fits))
    };
    find(&recognises).or_else(|| find(&takes_any))
}

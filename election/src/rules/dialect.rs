//! The dialect of one election: a recipe with what the spec says about it.

use bellwether_api::LeaderElectionSpec;
use bellwether_api::election::recipe::{Decoder, Options, Order, Recipe};
use bellwether_api::election::{CandidateOrder, DialectType, LeaderRule};

use super::InvalidSpec;
use crate::decode::Decoding;
use crate::dialect::{Matcher, Names, pattern};

/// The recipe where the spec describes the dialect. A pattern of the spec may be without a number, so
/// a client may create the same name twice.
static CUSTOM: Recipe = Recipe {
    reuses_names: true,
    ..Recipe::node(Decoder::Text)
};

/// A dialect with what the spec says about it.
#[derive(Clone, Debug)]
pub(super) struct Dialect {
    pub(super) type_: DialectType,
    /// The parts of the recipe that the spec cannot change. Its layout and decoders are in the fields below,
    /// with the spec's options.
    pub(super) recipe: &'static Recipe,
    /// `None` if the path is the leader's node.
    pub(super) names: Option<Names>,
    pub(super) identity: Decoding,
    pub(super) registration: Decoding,
    pub(super) leader: LeaderChoice,
    /// The JSON pointer to the end of the owner's term in its data.
    pub(super) expiry: Option<String>,
}

/// Which candidate leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LeaderChoice {
    /// The first in the queue, or the owner of the only node.
    First,
    /// The first whose data has something at this JSON pointer, or the owner if its data has.
    Marked(String),
}

impl Dialect {
    /// A dialect of the table; `None` for those without a recipe.
    pub(super) fn of_table(spec: &LeaderElectionSpec, type_: DialectType) -> Option<Self> {
        let recipe = type_.recipe()?;
        let options = &spec.dialect;
        let prefix = options
            .sequence
            .as_ref()
            .map_or("", |sequence| sequence.prefix.as_str());
        let json = options
            .json
            .as_ref()
            .filter(|_| recipe.options == Some(Options::Json));
        let mut dialect = Self {
            type_,
            recipe,
            names: Names::of_recipe(recipe, prefix),
            identity: match json {
                Some(json) => Decoding::Pointers(json.pointers.clone()),
                None => Decoding::Recipe(recipe.identity),
            },
            registration: Decoding::Recipe(recipe.registration.decoder),
            leader: match json.and_then(|json| json.active.clone()) {
                Some(pointer) => LeaderChoice::Marked(pointer),
                None => LeaderChoice::First,
            },
            expiry: json.and_then(|json| json.expiry.clone()),
        };
        dialect.apply_decoder(spec);
        Some(dialect)
    }

    /// The dialect that the spec describes.
    ///
    /// # Errors
    ///
    /// If an option is missing, or the pattern cannot be used.
    pub(super) fn custom(spec: &LeaderElectionSpec) -> Result<Self, InvalidSpec> {
        let missing = |what: &str| InvalidSpec(format!("spec.dialect.custom{what} is missing."));
        let options = spec.dialect.custom.as_ref().ok_or_else(|| missing(""))?;
        let order = match options.order {
            CandidateOrder::Numeric => Order::Number,
            CandidateOrder::Lexical => Order::Text,
            CandidateOrder::CreationZxid => Order::CreationZxid,
        };
        let names = if options.leader_rule == LeaderRule::Exists {
            None
        } else {
            let text = options.child_pattern.as_deref();
            let text = text.ok_or_else(|| missing(".childPattern"))?;
            let pattern = pattern(text, order).map_err(|reason| {
                let field = "spec.dialect.custom.childPattern";
                InvalidSpec(format!("{field} cannot be used: {reason}."))
            })?;
            Some(Names {
                matcher: Matcher::Pattern(pattern),
                order,
                shared: &[],
            })
        };
        let leader = match options.leader_rule {
            LeaderRule::First | LeaderRule::LeaderPath | LeaderRule::Exists => LeaderChoice::First,
            LeaderRule::DataPointer => {
                let pointer = options.data_pointer.clone();
                LeaderChoice::Marked(pointer.ok_or_else(|| missing(".dataPointer"))?)
            }
        };
        let mut dialect = Self {
            type_: spec.dialect.type_,
            recipe: &CUSTOM,
            names,
            identity: Decoding::Recipe(CUSTOM.identity),
            registration: Decoding::Recipe(CUSTOM.registration.decoder),
            leader,
            expiry: None,
        };
        dialect.apply_decoder(spec);
        Ok(dialect)
    }

    /// Puts the decoder of the spec in the place of the recipe's: that of the registration, if the leader
    /// registers itself, else that of the candidates.
    fn apply_decoder(&mut self, spec: &LeaderElectionSpec) {
        let Some(options) = &spec.identity else {
            return;
        };
        let places = self.recipe.registration.places;
        let registers = spec.dialect.leader_path.is_some() || !places.is_empty();
        if registers && self.names.is_some() {
            self.registration = Decoding::from_options(options);
        } else {
            self.identity = Decoding::from_options(options);
        }
    }
}

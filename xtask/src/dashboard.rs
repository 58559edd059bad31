//! The dashboard for Grafana, made from a table of panels.

mod panels;

use anyhow::Result;
use serde_json::{Value, json};

/// A panel.
struct Panel {
    title: &'static str,
    /// What it says, and what is worth a look.
    about: &'static str,
    look: Look,
    /// Grafana's word for the unit.
    unit: &'static str,
    /// How wide it is; a row has 24.
    width: u8,
    /// Queries with the legend of their series.
    queries: &'static [(&'static str, &'static str)],
}

/// How a panel looks.
#[derive(Clone, Copy, PartialEq)]
enum Look {
    Number,
    /// A number that is red unless it is 0.
    Trouble,
    Lines,
    Heatmap,
}

/// Panels under a heading.
struct Row {
    title: &'static str,
    panels: &'static [Panel],
}

const DATASOURCE: &str = "${datasource}";

/// The dashboard as a file that Grafana imports.
///
/// # Errors
/// When it cannot be written as JSON.
pub(crate) fn dashboard() -> Result<String> {
    let mut panels = Vec::new();
    let mut y = 0;
    for row in panels::ROWS {
        panels.push(json!({
            "id": panels.len() + 1, "type": "row", "title": row.title, "collapsed": false,
            "gridPos": { "x": 0, "y": y, "w": 24, "h": 1 },
        }));
        y += 1;
        let (mut x, mut height) = (0, 0);
        for panel in row.panels {
            if x + panel.width > 24 {
                y += height;
                (x, height) = (0, 0);
            }
            let h = match panel.look {
                Look::Number | Look::Trouble => 4,
                Look::Lines | Look::Heatmap => 8,
            };
            panels.push(drawn(panel, panels.len() + 1, x, y, h));
            x += panel.width;
            height = height.max(u32::from(h));
        }
        y += height;
    }
    let dashboard = json!({
        "uid": "bellwether",
        "title": "Bellwether",
        "description": "ZooKeeper ensembles, mirrored elections and the operator itself.",
        "tags": ["zookeeper", "bellwether"],
        "schemaVersion": 39,
        "editable": true,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": { "from": "now-1h", "to": "now" },
        "templating": { "list": variables() },
        "panels": panels,
    });
    Ok(format!("{}\n", serde_json::to_string_pretty(&dashboard)?))
}

fn variables() -> Vec<Value> {
    let query = |name: &str, query: &str| {
        json!({
            "name": name, "type": "query", "query": query, "refresh": 2, "sort": 1,
            "datasource": { "type": "prometheus", "uid": DATASOURCE },
            "includeAll": true, "multi": true, "allValue": ".*",
            "current": { "text": "All", "value": "$__all" },
        })
    };
    let names = "label_values(bellwether_ensemble_ready{namespace=~\"$namespace\"}, name)";
    vec![
        json!({ "name": "datasource", "type": "datasource", "query": "prometheus" }),
        query(
            "namespace",
            "label_values(bellwether_ensemble_ready, namespace)",
        ),
        query("ensemble", names),
    ]
}

fn drawn(panel: &Panel, id: usize, x: u8, y: u32, h: u8) -> Value {
    let number = matches!(panel.look, Look::Number | Look::Trouble);
    let targets: Vec<Value> = panel
        .queries
        .iter()
        .zip('A'..='Z')
        .map(|((query, legend), letter)| {
            json!({
                "refId": letter.to_string(),
                "datasource": { "type": "prometheus", "uid": DATASOURCE },
                "expr": query,
                "legendFormat": legend,
                "instant": number,
                "range": !number,
                "format": if panel.look == Look::Heatmap { "heatmap" } else { "time_series" },
            })
        })
        .collect();
    let kind = match panel.look {
        Look::Number | Look::Trouble => "stat",
        Look::Lines => "timeseries",
        Look::Heatmap => "heatmap",
    };
    let steps = if panel.look == Look::Trouble {
        json!([{ "color": "green", "value": null }, { "color": "red", "value": 1 }])
    } else {
        json!([{ "color": "text", "value": null }])
    };
    let options = match panel.look {
        Look::Number | Look::Trouble => json!({ "reduceOptions": { "calcs": ["lastNotNull"] } }),
        Look::Lines => json!({ "legend": { "displayMode": "list", "placement": "bottom" } }),
        Look::Heatmap => json!({ "calculate": false, "yAxis": { "unit": panel.unit } }),
    };
    json!({
        "id": id,
        "type": kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": { "type": "prometheus", "uid": DATASOURCE },
        "gridPos": { "x": x, "y": y, "w": panel.width, "h": h },
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "thresholds": { "mode": "absolute", "steps": steps },
            },
            "overrides": [],
        },
        "options": options,
        "targets": targets,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_panel_has_a_place_of_its_own_and_says_what_it_is() {
        let board: Value = serde_json::from_str(&dashboard().unwrap()).unwrap();
        let panels = board["panels"].as_array().unwrap();
        let rect = |p: &Value| ["x", "y", "w", "h"].map(|k| p["gridPos"][k].as_u64().unwrap());
        for (i, one) in panels.iter().enumerate() {
            let [x, y, w, h] = rect(one);
            assert!(x + w <= 24, "{one}");
            for other in &panels[i + 1..] {
                let [x2, y2, w2, h2] = rect(other);
                let apart = x + w <= x2 || x2 + w2 <= x || y + h <= y2 || y2 + h2 <= y;
                assert!(apart, "{} lies on {}", one["title"], other["title"]);
            }
        }
        for row in panels::ROWS {
            for panel in row.panels {
                assert!(panel.about.ends_with('.'), "{}", panel.title);
                assert!(!panel.queries.is_empty(), "{}", panel.title);
            }
        }
    }
}

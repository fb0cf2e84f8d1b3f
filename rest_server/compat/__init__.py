"""Wire format of llm-inferno (docs/glossary.md): its routes, statuses, bodies and messages."""

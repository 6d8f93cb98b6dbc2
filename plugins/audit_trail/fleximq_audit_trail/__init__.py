"""An extension for FlexiMQ that writes joins, leaves and publications to a file of JSON lines."""

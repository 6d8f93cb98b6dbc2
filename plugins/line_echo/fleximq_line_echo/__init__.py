"""A dialect for FlexiMQ: plain lines of text."""

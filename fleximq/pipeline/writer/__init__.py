"""The writing half of the data source: rows of Spark become messages, once each."""

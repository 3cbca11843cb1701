"""The manager: takes the streams of all edges, stores what they say and keeps it ready to be asked."""

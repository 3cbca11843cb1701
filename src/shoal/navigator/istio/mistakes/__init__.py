"""What is wrong in a mesh's configuration: each function finds one family of mistakes."""

"""What a stage is: name, parameters, command line. Standard library only, Python 3.9; used by all three floors."""

"""What a person sees while a run trains: a live panel, or plain lines without a terminal."""
